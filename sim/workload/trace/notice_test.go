package trace

import (
	"slices"
	"strings"
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
	images := strings.Replace(dynamoRow("a", 1, 2, 64, "1", ""), `"output_tokens"`, `"images":["x"],"output_tokens"`, 1)
	tr = load(t, images+dynamoRow("b", 1, 2, 64, "1", `,"lora_name":"l"`), LoadOptions{Format: Dynamo})
	want = []string{
		tr.path + ": 1 of 2 rows have images, which changes nothing here",
		tr.path + ": 1 of 2 rows have lora_name, which changes nothing here",
	}
	if got := tr.Notices(); !slices.Equal(got, want) {
		t.Errorf("dynamo: %q, want %q", got, want)
	}
}
