package trace

import (
	"slices"
	"testing"
)

func TestMembersThatNobodyReadsAreCounted(t *testing.T) {
	const rows = `{"timestamp":0,"input_length":8,"output_length":1,"hash_ids":[1],"images":[{"url":"a"}],"lora_name":"x"}
{"timestamp":1,"input_length":8,"output_length":1,"hash_ids":[1],"images":[ ],"lora_name":null}
{"timestamp":2,"input_length":8,"output_length":1,"hash_ids":[1],"images":[1,2]}
`
	tr := load(t, rows, mooncake(64))
	want := []string{
		tr.path + ": 2 of 3 rows have images, which changes nothing here",
		tr.path + ": 1 of 3 rows have lora_name, which changes nothing here",
	}
	if got := tr.Notices(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
