package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReasonsAreComplete reads the constants from the source: one that is added
// there and forgotten in Reasons would be missing in the documentation and metrics.
func TestReasonsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, value := range spec.Values {
			word, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, Reason(word))
		}
		return false
	})
	if diff := cmp.Diff(declared, Reasons()); diff != "" {
		t.Errorf("Reasons() differs from the constants (-declared +returned):\n%s", diff)
	}
}

// TestReasonsAreWords: a Reason is written as it is into a structured header
// (RFC 8941 token) and into metric labels.
func TestReasonsAreWords(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if !word.MatchString(string(reason)) {
			t.Errorf("%q is not a lower-case word", reason)
		}
		if seen[reason] {
			t.Errorf("%q occurs twice", reason)
		}
		seen[reason] = true
	}
}

func TestReasonsIsTheCallersSlice(t *testing.T) {
	want := Reasons()
	slices.Reverse(Reasons())
	if diff := cmp.Diff(want, Reasons()); diff != "" {
		t.Errorf("a caller's change shows in the next call (-want +got):\n%s", diff)
	}
}
