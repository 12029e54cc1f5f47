// Package spelling finds the name that a mistyped word may stand for. Every hint of
// the form "did you mean" comes from here. Words and names are compared byte by byte.
package spelling

import "strings"

// maxWord bounds the words that hints are looked for, in bytes: the distance takes
// time in proportion to the product of two lengths.
const maxWord = 64

// Nearest returns the name that differs from word in the fewest edits, at most a
// third of the word's length; "" if none is near. The first of equals wins.
func Nearest(word string, names []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, found := len(word)/3+1, ""
	for _, name := range names {
		if d := Edits(word, name); d < best {
			best, found = d, name
		}
	}
	return found
}

// Likely returns Nearest, or else the first name that contains word or is contained
// in it; words of up to three letters are compared by edits alone.
func Likely(word string, names []string) string {
	if near := Nearest(word, names); near != "" || len(word) <= 3 {
		return near
	}
	for _, name := range names {
		if name != "" && (strings.Contains(name, word) || strings.Contains(word, name)) {
			return name
		}
	}
	return ""
}

// Edits returns the Levenshtein distance of two words in bytes.
func Edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
