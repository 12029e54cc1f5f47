package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// citation is one place that a comment names: a behaviour document and, unless the
// whole document is meant, a section of it.
type citation struct{ document, section string }

func (c citation) String() string { return strings.TrimSpace("spec " + c.document + " " + c.section) }

var (
	sectionNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)
	numbered      = regexp.MustCompile(`(?m)^#+ ([0-9]+(\.[0-9]+)*)\.? `)
)

// citations reads the citations out of the text of a comment: the word "spec", a
// document and its sections, with further sections and documents behind commas,
// "and" or "to". A section without a document is a citation of no document.
func citations(text string, documents map[string]map[string]bool) []citation {
	words := strings.Fields(text)
	var all []citation
	for i := 0; i < len(words); i++ {
		if strings.TrimLeft(words[i], "([") != "spec" || i+1 == len(words) {
			continue
		}
		first := strings.TrimRight(words[i+1], ",.;:)]")
		if documents[first] == nil && !sectionNumber.MatchString(first) && !strings.Contains(first, "-") {
			continue // the word in a sentence, not a citation
		}
		found, used := citationList(words[i+1:], documents)
		all = append(all, found...)
		i += used
	}
	return all
}

// citationList reads one list of citations from the head of words. It returns the
// number of words that it used, too.
func citationList(words []string, documents map[string]map[string]bool) ([]citation, int) {
	var all []citation
	document := ""
	for i, word := range words {
		bare := strings.TrimRight(word, ",.;:)]")
		switch {
		case sectionNumber.MatchString(bare):
			if n := len(all); n > 0 && all[n-1] == (citation{document: document}) {
				all = all[:n-1]
			}
			all = append(all, citation{document, bare})
		case i == 0 || documents[bare] != nil:
			document = bare
			all = append(all, citation{document: document})
		case bare == "and" || bare == "to":
			continue
		default:
			return all, i
		}
		if end := strings.TrimPrefix(word, bare); end != "" && end != "," {
			return all, i
		}
	}
	return all, len(words)
}

// behaviourDocuments returns the numbers of the sections of every document by name.
func behaviourDocuments(t *testing.T, root string) map[string]map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "behaviour", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no behaviour documents: %v", err)
	}
	documents := map[string]map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sections := map[string]bool{}
		for _, m := range numbered.FindAllStringSubmatch(string(text), -1) {
			sections[m[1]] = true
		}
		if name := strings.TrimSuffix(filepath.Base(f), ".md"); name != "README" {
			documents[name] = sections
		}
	}
	return documents
}

// check returns what is wrong with a citation.
func (c citation) check(documents map[string]map[string]bool) error {
	sections, ok := documents[c.document]
	switch {
	case c.document == "":
		return fmt.Errorf("section %s is cited without its document", c.section)
	case !ok:
		return fmt.Errorf("%s: docs/behaviour/%s.md does not exist", c, c.document)
	case c.section != "" && !sections[c.section]:
		return fmt.Errorf("%s: docs/behaviour/%s.md has no section %s", c, c.document, c.section)
	}
	return nil
}

func TestCitationsInCommentsResolve(t *testing.T) {
	root := filepath.Join("..", "..")
	documents := behaviourDocuments(t, root)
	files := token.NewFileSet()
	seen := 0
	for _, path := range goFiles(t, root) {
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, c := range citations(commentText(group), documents) {
				seen++
				if err := c.check(documents); err != nil {
					t.Errorf("%s: %v", files.Position(group.Pos()), err)
				}
			}
		}
	}
	if seen < 250 {
		t.Errorf("only %d citations were found: comments are not read as they are written", seen)
	}
}

// goFiles returns every Go file of the repository, tests included.
func goFiles(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// commentText is the text of a comment group in one line, directives included.
func commentText(group *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range group.List {
		b.WriteString(strings.TrimPrefix(c.Text, "//"))
		b.WriteByte(' ')
	}
	return b.String()
}

func TestCitationsAreReadWithTheirLists(t *testing.T) {
	documents := map[string]map[string]bool{
		"kv-router": {"6.3": true, "7": true, "7.1": true}, "engine-vllm": {"11": true}, "planner": {"1": true, "12": true},
	}
	for text, want := range map[string]string{
		"cost (spec kv-router 6.3).":                     "spec kv-router 6.3",
		"see spec kv-router 6.3, 7.1; 9 are left":        "spec kv-router 6.3|spec kv-router 7.1",
		"spec engine-vllm 11, kv-router 7 and 7.1, then": "spec engine-vllm 11|spec kv-router 7|spec kv-router 7.1",
		"of spec planner, 1 to 12.":                      "spec planner 1|spec planner 12",
		"(spec planner) 5 workers":                       "spec planner",
		"spec kv-router 7, step 5":                       "spec kv-router 7",
		"the spec says so":                               "",
		"spec 7.1":                                       "section 7.1 is cited without its document",
		"spec kv-roter 6.3":                              "spec kv-roter 6.3: docs/behaviour/kv-roter.md does not exist",
		"spec kv-router 6.4":                             "spec kv-router 6.4: docs/behaviour/kv-router.md has no section 6.4",
	} {
		var got []string
		for _, c := range citations(text, documents) {
			if err := c.check(documents); err != nil {
				got = append(got, err.Error())
			} else {
				got = append(got, c.String())
			}
		}
		if g := strings.Join(got, "|"); g != want {
			t.Errorf("%q: got %q, want %q", text, g, want)
		}
	}
}

// codePath is a path of a file or folder that a page names in code type.
var codePath = regexp.MustCompile("`((?:\\.ci|cmd|configs|docs|internal|planner|results|scripts|sim|sweep)/[A-Za-z0-9_./-]+)`")

func TestFilesThatThePagesNameExist(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codePath.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "NAME") {
				continue
			}
			seen++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d paths were found", seen)
	}
}
