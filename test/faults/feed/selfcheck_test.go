package feed

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var selfCheckChurn = flag.Duration("feed.selfcheck", 10*time.Second, "for how long collections are checked while they change")

// checkOften is the shortest interval there is.
var checkOften = rigOptions{args: []string{"--self-check-interval", "1s"}}

// TestSelfCheck: what is kept is compared with the API server, finds what is wrong there, and
// finds nothing where nothing is.
func TestSelfCheck(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	t.Run("changing", func(t *testing.T) { selfCheckWhileChanging(t, c) })
}

// selfCheckWhileChanging: collections of several kinds in all their representations change all the
// time, and no check finds a mismatch.
func selfCheckWhileChanging(t *testing.T, c *cluster) {
	r := newRig(t, c, checkOften)
	ns := r.namespace(t, "changing")
	kinds := []kind{configMaps, pods, endpointSlices, widgets, gadgets}
	for _, k := range kinds {
		r.create(t, k, ns, "always")
		for _, accept := range []string{
			"application/json", protobufType + ",application/json", "application/json" + metadataOf, protobufType + metadataOf,
		} {
			r.fromMemory(t, accept, k.Path("")+"?resourceVersion=0")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), *selfCheckChurn)
	defer cancel()
	var writers errgroup.Group
	for i, k := range kinds {
		writers.Go(func() error { return r.writeRandomly(ctx, k, ns, rand.New(rand.NewPCG(uint64(i), 1))) }) // #nosec G115 -- a count
	}
	expect.NoError(t, writers.Wait())
	r.until("checks of all collections", func() error {
		if n := r.checks(t)["agrees"]; n < 2*len(kinds)*4 {
			return fmt.Errorf("%d checks", n)
		}
		return nil
	})
	checks := r.checks(t)
	t.Logf("checks: %v", checks)
	if checks["mismatch"] != 0 {
		t.Errorf("checks: %v", checks)
	}
}

// writeRandomly writes objects of a kind until ctx ends.
func (c *cluster) writeRandomly(ctx context.Context, k kind, namespace string, random *rand.Rand) error {
	there := map[string]bool{}
	for n := 0; ; n++ {
		name := fmt.Sprintf("churn-%d", random.IntN(40))
		method, path, object := http.MethodPost, k.Path(namespace), k.Object(name)
		if there[name] {
			method, path = http.MethodPatch, path+"/"+name
			object = kinds.Touch(strconv.Itoa(n))
			if random.IntN(4) == 0 {
				method, path, object = http.MethodDelete, path+"?gracePeriodSeconds=0", nil
			}
		}
		there[name] = method != http.MethodDelete
		switch _, err := c.direct.Do(ctx, method, path, object); {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was cut short, and that is all
		case err != nil:
			return err
		}
	}
}

// checks says how many self-checks had which result.
func (r *rig) checks(t *testing.T) map[string]int {
	t.Helper()
	all, err := soak.Read(t.Context(), http.DefaultClient, r.proxy.AdminURL()+"/metrics", "listproxy_selfchecks_total")
	expect.NoError(t, err)
	results := map[string]int{}
	for _, s := range all {
		results[s.Labels["result"]] += int(s.Value)
	}
	return results
}
