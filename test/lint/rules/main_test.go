package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const good = `package p

import "other.example/q"

// sentence returns nothing.
func sentence() {}

// TestName: tests may begin so.
func TestName() {}

type pair struct{ a, b int }

func body() (from, to int) {
	a, b := 1, 2
	c, d, e := q.Three(pair{1, 2}, q.Others{1, 2, 3})
	triples := []triple{{}, {a: a}, {a: b, b: c, c: d}}
	return e, len(triples)
}
`

// In bad, each line that a rule forbids says so.
const bad = `package p

// body: it returns nothing. (forbidden)
func body(of []triple) { // forbidden
	a, b, c := 1, 2, 3 // forbidden
	var d, e, f = 1, 2, 3 // forbidden
	a, b, c = d, e, f // forbidden
	for _, is := range of { // forbidden
		is = triple{1, 2, 3} // forbidden
	}
	of = []triple{{1, 2, 3}} // forbidden
	_ = map[string]*triple{
		"": {1, 2, 3}, // forbidden
	}
	_ = []struct{ a, b, c int }{
		{1, 2, 3}, // forbidden
	}
}

type triple struct {
	// a: a field. (forbidden)
	a, b, c int
}

type other struct {
	On int // forbidden
}
`

// TestCheck: the rules find nothing in good, and each forbidden line of bad. Both are files of one package.
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
			begin := fmt.Sprintf("%s:%d: ", name, i+1)
			found := slices.ContainsFunc(findings, func(f string) bool { return strings.HasPrefix(f, begin) })
			if forbidden := strings.Contains(line, "forbidden"); found != forbidden {
				t.Errorf("%s%q: found %t, want %t", begin, line, found, forbidden)
			}
		}
	}
}
