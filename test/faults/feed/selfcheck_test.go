package feed

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
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
	t.Run("falsified", func(t *testing.T) { selfCheckWhatIsFalsified(t, c) })
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

// falsity is a way in which an event about a kind of object can lose a bit of truth.
type falsity struct {
	name string
	kind kind
	// write makes the event, for the nth time another one.
	write func(t *testing.T, k kind, namespace string, n int)
	mark  string // in the line that write makes
	// falsify says what listproxy gets in place of the line.
	falsify func(ctx context.Context, line []byte) ([]byte, error)
	says    string // the log, of what the check found
}

// falsities of a cluster.
func falsities(c *cluster) []falsity {
	revision := regexp.MustCompile(`("resourceVersion":")(\d+)(")`)
	touch := func(t *testing.T, k kind, ns string, n int) { c.touch(t, k, ns, "first", fmt.Sprint("true-", n)) }
	lost := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	return []falsity{
		{"a byte", configMaps, touch, `"touched":"true-`, func(_ context.Context, line []byte) ([]byte, error) {
			return bytes.Replace(line, []byte(`"touched":"true-`), []byte(`"touched":"trUe-`), 1), nil
		}, "has other bytes"},
		{"a revision", widgets, touch, `"touched":"true-`, func(ctx context.Context, line []byte) ([]byte, error) {
			// The next revision is there before listproxy hears of it: else it could find out that
			// the API server is not so far, and would not need a check to see that something is
			// wrong.
			err := poll.Retry(ctx, "another write", func() error {
				_, err := c.direct.Do(ctx, http.MethodPost, configMaps.Path("default"), fieldsOf{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": fieldsOf{"generateName": "next-"},
				})
				return err
			})
			return revision.ReplaceAllFunc(line, func(found []byte) []byte {
				m := revision.FindSubmatch(found)
				n, err := strconv.Atoi(string(m[2]))
				if err != nil {
					return found
				}
				return fmt.Appendf(nil, "%s%d%s", m[1], n+1, m[3])
			}), err
		}, "is of revision"},
		{"a missing object", limitRanges, func(t *testing.T, k kind, ns string, n int) {
			c.create(t, k, ns, fmt.Sprint("missing-", n))
		}, `"name":"missing-`, lost, "is missing"},
		{"an object too many", podTemplates, func(t *testing.T, k kind, ns string, n int) {
			c.create(t, k, ns, fmt.Sprint("gone-", n))
			c.remove(t, k, ns, fmt.Sprint("gone-", n))
		}, `"type":"DELETED"`, lost, "is not there upstream"},
	}
}

// selfCheckWhatIsFalsified: on its way to listproxy an event loses a bit of truth. The check finds
// it, and the answers are right again.
func selfCheckWhatIsFalsified(t *testing.T, c *cluster) {
	for _, tt := range falsities(c) {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, c, checkOften)
			ns := r.namespace(t, "falsified-"+tt.kind.Plural)
			r.create(t, tt.kind, ns, "first")
			r.await(hitAny, tt.kind.Path(""), anyVersion())
			loads, written := 0, 0
			r.until("a mismatch", func() error {
				now := r.count(tt.kind, fullLoad) // before the look: a mismatch is followed by another load
				if r.checks(t)["mismatch"] != 0 {
					return nil
				}
				if now > loads {
					// What was falsified before, if anything, has been loaded anew.
					loads = now
					written++
					r.nextLine(tt.kind, ns, tt.mark, func(line []byte) ([]byte, error) { return tt.falsify(t.Context(), line) })
					tt.write(t, tt.kind, ns, written)
					c.namespace(t, fmt.Sprintf("elsewhere-%s-%d", tt.kind.Plural, written))
					r.create(t, tt.kind, ns, fmt.Sprint("after-", written)) // its event is past the falsified one
				}
				return errors.New("none")
			})
			r.changeLines(nil)
			if log := r.proxy.Log(); !strings.Contains(log, "self-check: what is kept is not what the upstream says") || !strings.Contains(log, tt.says) {
				t.Errorf("the log does not say %q", tt.says)
			}
			r.await(hitAny, tt.kind.Path(""), anyVersion()) // and compares
			r.exactAgain(tt.kind, ns, "first")
		})
	}
}
