package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestRunsAgainstAMap holds what is found in runs against walking a map, while objects come, go and
// change their labels.
func TestRunsAgainstAMap(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			state, model := NewTree(false), map[string]wire.Labels{}
			type past struct {
				tree  Tree
				model map[string]wire.Labels
			}
			var kept []past
			for step := range 12000 {
				key := JoinKey(fmt.Sprintf("ns-%d", rnd.IntN(5)), fmt.Sprintf("p%04d", rnd.IntN(900)))
				// The number of objects goes up, down to nearly none, and up again.
				if grow := step/4000 != 1; rnd.IntN(10) < 8 == grow {
					set := wire.MustLabels("app", fmt.Sprint(rnd.IntN(3)), "owner", fmt.Sprint(rnd.IntN(200)))
					state.Set(&Object{Key: key, Labels: set})
					model[key] = set
				} else {
					state.Remove(key)
					delete(model, key)
				}
				if step%1000 == 999 {
					kept = append(kept, past{state.Clone(), maps.Clone(model)})
					checkRuns(t, state, model, rnd)
				}
			}
			for _, p := range kept {
				checkRuns(t, p.tree, p.model, rnd) // clones kept their own
			}
		})
	}
}

// checkRuns compares a tree with a model of its labels.
func checkRuns(t *testing.T, state Tree, model map[string]wire.Labels, rnd *rand.Rand) {
	t.Helper()
	before := ""
	state.labels.runs.Ascend(func(r *run) bool {
		if len(r.keys) > maxRun || len(r.labels) != len(r.keys) || len(r.signatures) != len(r.keys) {
			t.Fatalf("the run %q has columns of %d, %d and %d", r.first, len(r.keys), len(r.labels), len(r.signatures))
		}
		if len(r.keys) == 0 && r.first != "" {
			t.Fatalf("the run %q is empty", r.first)
		}
		for _, key := range r.keys {
			if key < r.first || key <= before {
				t.Fatalf("the run %q has %q after %q", r.first, key, before)
			}
			before = key
		}
		return true
	})
	if runs, most := state.labels.runs.Len(), 2+len(model)/(maxRun/8); runs > most {
		t.Fatalf("%d labels in %d runs, want at most %d", len(model), runs, most)
	}
	for _, text := range []string{"app=1", "app!=1", "owner=7", "owner in (7,8,9),app=0", "none", ""} {
		selector, err := labels.Parse(text)
		expect.NoError(t, err)
		from, end := "", ""
		if rnd.IntN(3) > 0 {
			from = JoinKey(fmt.Sprintf("ns-%d", rnd.IntN(6)), fmt.Sprintf("p%04d", rnd.IntN(1000)))
		}
		if rnd.IntN(3) > 0 {
			end = Scope{Namespace: fmt.Sprintf("ns-%d", rnd.IntN(6))}.End()
		}
		most := rnd.IntN(400)
		var want, got []string
		for _, key := range slices.Sorted(maps.Keys(model)) {
			if key >= from && (end == "" || key < end) && len(want) < most && selector.Matches(model[key]) {
				want = append(want, key)
			}
		}
		m := &matcher{labels: selector, sieve: newSieve(selector), known: map[wire.Labels]bool{}}
		if most > 0 {
			state.ascendLabels(from, end, m, func(o *Object) bool {
				got = append(got, o.Key)
				return len(got) < most
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q from %q to %q, the first %d (-want +got):\n%s", text, from, end, most, diff)
		}
	}
}

// TestRunsSkip is what makes a scan cheap: of neighbours with the same labels none is looked at on
// its own, and a load in order leaves full runs.
func TestRunsSkip(t *testing.T) {
	const n = 10_000
	state := NewTree(false)
	for i := range n {
		state.Set(&Object{Key: fmt.Sprintf("ns/p%06d", i), Labels: wire.MustLabels("owner", fmt.Sprint(i/200))})
	}
	if runs := state.labels.runs.Len(); runs > n/maxRun+1 {
		t.Errorf("%d labels in %d runs", n, runs)
	}
	selector, err := labels.Parse("owner=7")
	expect.NoError(t, err)
	sieve, passed := newSieve(selector), 0
	state.labels.runs.Ascend(func(r *run) bool {
		if sieve.mayPass(r.all) {
			passed++
		}
		return true
	})
	if passed > 16 {
		t.Errorf("%d runs must be looked at for 200 objects that follow each other", passed)
	}
}
