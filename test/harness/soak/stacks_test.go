package soak

import (
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"strings"
	"testing"
)

// TestStacks reads the runtime's own word.
func TestStacks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(pprof.Handler("goroutine").ServeHTTP))
	defer server.Close()
	take := func() Stacks {
		stacks, err := TakeStacks(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		return stacks
	}
	before := take()
	if more := before.More(before); more != "" {
		t.Errorf("more than itself: %s", more)
	}
	end := make(chan struct{})
	defer close(end)
	for range 3 {
		go waitFor(end)
	}
	if more := take().More(before); !strings.Contains(more, "3 more: ") || !strings.Contains(more, "soak.waitFor") {
		t.Errorf("three goroutines more, and this is told: %s", more)
	}
	if _, err := readStacks(strings.NewReader("a @ 0x1\n")); err == nil {
		t.Error("what is no profile was read")
	}
}

func waitFor(end <-chan struct{}) { <-end }
