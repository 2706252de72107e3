package soak

import (
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/listproxy/listproxy/test/expect"
)

// TestStacks reads the runtime's own word.
func TestStacks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(pprof.Index))
	defer server.Close()
	take := func(profile string) Stacks {
		stacks, err := TakeStacks(t.Context(), server.URL, profile)
		expect.NoError(t, err)
		return stacks
	}
	before := take("goroutine")
	if more := before.More(before, 1); more != "" {
		t.Errorf("more than itself: %s", more)
	}
	end := make(chan struct{})
	defer close(end)
	for range 3 {
		go waitFor(end)
	}
	if more := take("goroutine").More(before, 1); !strings.Contains(more, "3 more: ") || !strings.Contains(more, "soak.waitFor") {
		t.Errorf("three goroutines more, and this is told: %s", more)
	}
	before = take("heap")
	held := hold()
	if more := take("heap").More(before, len(held)/2); !strings.Contains(more, "more: github.com/listproxy/listproxy/test/harness/soak.hold") {
		t.Errorf("%d bytes more, and this is told: %s", len(held), more)
	}
	runtime.KeepAlive(held)
	if _, err := readStacks(strings.NewReader("a @ 0x1\n")); err == nil {
		t.Error("what is no profile was read")
	}
}

// TestCollect: nothing is left that only a pool has, and only until the second collection.
func TestCollect(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(pprof.Index))
	defer server.Close()
	var pool sync.Pool
	pooled := func() weak.Pointer[[]byte] {
		held := hold()
		pool.Put(&held)
		return weak.Make(&held)
	}()
	expect.NoError(t, Collect(t.Context(), server.URL))
	if pooled.Value() != nil {
		t.Error("what was in a pool is there")
	}
	runtime.KeepAlive(&pool)
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if Collect(t.Context(), gone.URL) == nil {
		t.Error("where there are no profiles garbage was collected")
	}
}

//go:noinline
func hold() []byte { return make([]byte, 64<<20) }

func waitFor(end <-chan struct{}) { <-end }
