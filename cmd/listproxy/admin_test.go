package main

import (
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

func TestFlagsInForce(t *testing.T) {
	o, err := parse("--secure-port", "1234", "--eager", "pods,nodes")
	expect.NoError(t, err)
	got := flagsInForce(o.flags)
	for _, want := range []string{"secure-port=1234", "eager=[pods,nodes]", "history-window=2m30s", "watches=false"} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s in %q", want, got)
		}
	}
}
