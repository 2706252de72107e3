package differential

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// coverageAfter is the number of comparisons after which every class must have been compared. A machine of two cores makes as
// many in about a minute and a half.
const coverageAfter = 8000

// TestLists: while objects change, listproxy answers lists as kube-apiserver does, byte for byte, to users with tokens, with
// certificates, and who impersonate others.
func TestLists(t *testing.T) {
	churn(t, shared, 60)
	c := newComparator(t)
	const minPerSecond = 10 // on the slowest machine
	c.lists(enough(t, c, *duration, int(minPerSecond*duration.Seconds())), *seed, 24)
	finish(t, c.report, *share)
	if n := c.report.counts[expired]; n > 0 { // etcd is not compacted during the test
		t.Errorf("listproxy answered %d lists of revisions that kube-apiserver no longer has", n)
	}
	if got := c.report.comparisons(); got >= coverageAfter {
		if missing := slices.DeleteFunc(classes(), c.report.has); len(missing) > 0 {
			t.Errorf("after %d comparisons, %d classes of lists were not compared: %+v", got, len(missing), missing)
		}
		if sharded && c.report.counts["shards from memory"] == 0 {
			t.Errorf("after %d comparisons no shard came from memory", got)
		}
		for _, user := range shared.Users {
			if c.report.counts[user.Name] == 0 {
				t.Errorf("after %d comparisons, none was by %s", got, user.Name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.caughtUp(ctx))
}

// TestWatches: while objects change, listproxy's watches have the events and bookmarks of kube-apiserver's.
func TestWatches(t *testing.T) {
	churn(t, shared, 60)
	c := newComparator(t)
	c.watches(enough(t, c, *duration, 20), *seed, 48)
	finish(t, c.report, *share)
}

// TestNewestOfQuietResources: while other resources are written, consistent lists of resources that nobody writes come from
// memory, with kube-apiserver's bytes.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	churn(t, shared, 20, quiet...)
	c := newComparator(t)
	rng := rand.New(rand.NewPCG(*seed, 7))
	d := newDeck(cluster.Split(rng), shared.Resources)
	d.cards = slices.DeleteFunc(d.cards, func(c card) bool {
		return c.Semantics != mostRecent || !slices.Contains(quiet, c.Resource.Resource)
	})
	c.run(enough(t, c, 0, 60), rng, 12, func(ctx context.Context, g *generator) { c.deal(ctx, g, d) })
	finish(t, c.report, *share)
}
