package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestMutantsApply: each is a change of the code as it is now. Whether a test notices is what
// make mutants finds out.
func TestMutantsApply(t *testing.T) {
	const root = "../.."
	mutants, err := readAll(root, regexp.MustCompile(""))
	expect.NoError(t, err)
	for _, m := range mutants {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// TestJudge: only a test that fails by its name kills a mutant.
func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name, output string
		err          error
		want         verdict
		says         string
	}{
		{name: "a test passes", output: `{"Action":"pass","Test":"TestA"}`, want: passed},
		{name: "no test runs", output: `{"Action":"pass"}`, want: unusable, says: "NO TEST RUNS"},
		{name: "tests fail", output: `{"Action":"fail","Test":"TestA/b"}
{"Action":"fail","Test":"TestA"}
{"Action":"fail","Test":"TestC"}
{"Action":"fail"}`, err: errTest, want: failed, says: "TestA/b, TestC"},
		{name: "it does not compile", output: `{"Action":"build-output","Output":"x.go:1: undefined: a\n"}
{"Action":"build-fail"}
{"Action":"fail"}`, err: errTest, want: unusable, says: "undefined: a"},
		{name: "no test could begin", output: `{"Action":"output","Output":"no etcd\n"}
{"Action":"fail"}`, err: errTest, want: unusable, says: "no etcd"},
		{name: "no such package", output: "no required module provides package", err: errTest, want: unusable, says: "no required module"},
	} {
		got := judge([]byte(test.output), test.err)
		if got.verdict != test.want || !strings.Contains(got.why, test.says) {
			t.Errorf("%s: %d %q", test.name, got.verdict, got.why)
		}
	}
}

var errTest = errors.New("exit status 1")
