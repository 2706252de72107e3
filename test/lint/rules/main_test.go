package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// good breaks no rule. The comments in it say why.
const good = `package p

import "other.example/q"

// sentence returns nothing. (a sentence)
func sentence() {}

// TestName: tests may begin so. (the comment of a test)
func TestName() {}

type pair struct{ a, b int }

func body() (from, to int) {
	a, b := 1, 2 // two values
	c, d, e := q.Three(pair{1, 2}, q.Others{1, 2, 3}) // one call; a type of two fields; a type that is not of this repository
	triples := []triple{{}, {a: a}, {a: b, b: c, c: d}} // no fields, or all with their names
	return e, len(triples)
}
`

// In bad, each line that breaks a rule ends with "BREAKS" and the rule, one of messages.
const bad = `package p

// body: it returns nothing. BREAKS comment
func body(of []triple) { // BREAKS name
	a, b, c := 1, 2, 3 // BREAKS assignment
	var d, e, f = 1, 2, 3 // BREAKS assignment
	a, b, c = d, e, f // BREAKS assignment
	for _, is := range of { // BREAKS name
		is = triple{1, 2, 3} // BREAKS literal
	}
	of = []triple{{1, 2, 3}} // BREAKS literal
	_ = map[string]*triple{
		"": {1, 2, 3}, // BREAKS literal
	}
	_ = []struct{ a, b, c int }{
		{1, 2, 3}, // BREAKS literal
	}
}

type triple struct {
	// a: a field. BREAKS comment
	a, b, c int
}

type other struct {
	On int // BREAKS name
}
`

// messages has a part of the finding of each rule. Lines without a rule have the part "", which is in any finding: they must
// have none.
var messages = map[string]string{
	"comment": "a comment begins with", "name": "does not say what it is", "assignment": "are assigned at once", "literal": "without their names",
}

// TestCheck: the rules find nothing in good, and what is marked in bad. Both are files of one package.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	files := map[string]string{"good.go": good, "bad.go": bad}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	findings, err := check([]string{"good.go", "bad.go"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		for i, line := range strings.Split(content, "\n") {
			position := fmt.Sprintf("%s:%d: ", name, i+1)
			_, rule, isMarked := strings.Cut(line, "BREAKS ")
			isFound := slices.ContainsFunc(findings, func(finding string) bool {
				return strings.HasPrefix(finding, position) && strings.Contains(finding, messages[rule])
			})
			if isFound != isMarked {
				t.Errorf("%s%q: found %t, want %t; all findings: %q", position, line, isFound, isMarked, findings)
			}
		}
	}
}
