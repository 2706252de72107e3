package index

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

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
