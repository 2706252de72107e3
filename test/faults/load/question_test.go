package load

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestQuestions: which lists have an age, which hold all that was written before, and what a first
// page is compared with.
func TestQuestions(t *testing.T) {
	for query, want := range map[string]struct{ newest, recent bool }{
		"":                               {true, true},
		"limit=7":                        {true, true},
		ask.AnyVersion:                   {true, false},
		ask.NotOlderThan(7):              {true, false},
		ask.Exactly(7):                   {false, false},
		ask.FirstPage(7, ask.Exactly(7)): {false, false},
		ask.NextPage(7, "a token"):       {false, false},
	} {
		if q := (Question{Query: query}); q.Newest() != want.newest || q.Recent() != want.recent {
			t.Errorf("%q: newest %t, recent %t, want %+v", query, q.Newest(), q.Recent(), want)
		}
	}
	if got, want := (Question{Query: "limit=7", Limit: 7}).At(5).Query, ask.FirstPage(7, ask.Exactly(5)); got != want {
		t.Errorf("a first page is compared with %q, want %q", got, want)
	}
}

// TestGeneration: by its label, a list has what is in a generation's namespace, in a query as
// listproxy answers them.
func TestGeneration(t *testing.T) {
	q := Question{Collection: Collection{Pods, AsJSON}, Generation: "g-1", Query: ask.Exactly(7)}
	if want := "/api/v1/pods?labelSelector=generation%3Dg-1&resourceVersion=7&resourceVersionMatch=Exact"; q.Target() != want {
		t.Errorf("it asks for %s", q.Target())
	}
	in := func(namespace, name string) ask.Identity { return ask.Identity{Namespace: namespace, Name: name} }
	chosen, more := q.choose([]ask.Identity{in("faults", "a"), in("g-1", "a"), in("g-1", "b"), in("g-10", "a")})
	if diff := cmp.Diff([]ask.Identity{in("g-1", "a"), in("g-1", "b")}, chosen); diff != "" || more {
		t.Errorf("more: %t, -want +got:\n%s", more, diff)
	}
}
