package differential_test

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// lagging is for how long a hop holds back what watches tell.
const lagging = 300 * time.Millisecond

var resourceVersion = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

// onlyNewest asks for the newest state of config maps.
var onlyNewest = differential.Options{
	Bound: patience, Resources: []string{"configmaps"}, AdminOnly: true, Consistent: true,
	Only: func(c differential.Class) bool {
		return c.Semantics == differential.MostRecent && c.Page != differential.Next &&
			c.Representation == differential.JSON && c.Selector == differential.None
	},
}

// isQuestion reports whether a request asks how far the API server is.
func isQuestion(r *http.Request) bool {
	return hop.Own(r) && strings.Contains(r.URL.Query().Get("fieldSelector"), "~listproxy-probe")
}

// TestNoticesBrokenBarrier: where the upstream's word on how far it is tells nothing, answers of
// the newest state lack writes that were acknowledged before, and the comparison notices that
// within seconds.
func TestNoticesBrokenBarrier(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for name, newLie := range map[string]func() func(told, said uint64) uint64{
		// As if an event were proof: what the stream has told last is taken for all there is.
		"events-prove": func() func(uint64, uint64) uint64 {
			return func(told, _ uint64) uint64 { return told }
		},
		// As if the revision of another resource, in an etcd of its own, said something of this one.
		"anothers-revision": func() func(uint64, uint64) uint64 {
			secrets := resource(t, "secrets")
			return func(told, _ uint64) uint64 { return max(told, shared.Newest(secrets)) }
		},
		// As if a question proved something for requests that came after it was sent.
		"a-question-from-before": func() func(uint64, uint64) uint64 {
			var mu sync.Mutex
			var before uint64
			var since time.Time
			return func(told, said uint64) uint64 {
				mu.Lock()
				defer mu.Unlock()
				if time.Since(since) > 10*lagging {
					before, since = said, time.Now()
				}
				return max(before, told) // less would be noticed by listproxy itself
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, lie := feedHop(t), newLie()
			var told atomic.Uint64
			h.OnDelay(func(r *http.Request) time.Duration {
				if strings.HasSuffix(r.URL.Path, "/configmaps") {
					return lagging
				}
				return 0
			})
			tell := func(r *http.Request, text []byte) {
				if found := resourceVersion.FindSubmatch(text); found != nil && strings.HasSuffix(r.URL.Path, "/configmaps") {
					revision, err := strconv.ParseUint(string(found[1]), 10, 64)
					for was := told.Load(); err == nil && revision > was && !told.CompareAndSwap(was, revision); was = told.Load() {
					}
				}
			}
			h.OnLine(func(r *http.Request, line []byte) ([]byte, error) {
				tell(r, line)
				return line, nil
			})
			h.OnBody(func(r *http.Request, body []byte) []byte {
				if !isQuestion(r) {
					tell(r, body) // a state that is loaded page by page
					return body
				}
				if told.Load() == 0 {
					return body
				}
				return resourceVersion.ReplaceAllFunc(body, func(field []byte) []byte {
					said, err := strconv.ParseUint(string(resourceVersion.FindSubmatch(field)[1]), 10, 64)
					if err != nil {
						return field
					}
					return []byte(`"resourceVersion":"` + strconv.FormatUint(lie(told.Load(), said), 10) + `"`)
				})
			})
			side := startBehind(t, h, "configmaps", "--consistent-lists=always", "--self-check-interval", "0")
			shared.ChangeUntilEnd(t, 40)
			notices(t, side, onlyNewest, differential.TooOld)
		})
	}
}

// TestNewestBehindALag: what watches tell comes late, and answers from memory lack nothing all the
// same: each waits for the proof.
func TestNewestBehindALag(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	h := feedHop(t)
	h.OnDelay(func(*http.Request) time.Duration { return lagging })
	side := startBehind(t, h, "configmaps,pods", "--consistent-lists=always")
	shared.ChangeUntilEnd(t, 40)
	report := differential.NewReport()
	options := onlyNewest
	options.Resources = []string{"configmaps", "pods"}
	options.Only = func(c differential.Class) bool { return c.Semantics == differential.MostRecent }
	ctx, cancel := bounded(t.Context(), report, func() bool { return report.Comparisons() >= 100 })
	defer cancel()
	differential.NewComparator(shared.Cluster, side, report, options).Run(ctx, *shared.Seed, 8)
	finish(t, report)
	if report.Share() == 0 {
		t.Error("nothing came from memory")
	}
}

// TestNewestOfQuietResources: the newest state of resources that nobody writes comes from memory, while
// others are written, and is the API server's byte for byte.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { shared.Churn(ctx, *shared.Seed, 2, 20, quiet...) })
	defer writing.Wait()
	defer stop()
	report := differential.NewReport()
	options := onlyNewest
	options.Resources, options.AdminOnly = quiet, false
	options.Only = func(c differential.Class) bool { return c.Semantics == differential.MostRecent }
	comparator := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, options)
	warm(t, comparator)
	comparing, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		defer enough()
		for report.Comparisons() < 60 && poll.Pause(comparing, 50*time.Millisecond) {
		}
	}()
	comparator.Run(comparing, *shared.Seed, 12)
	finish(t, report)
	if got := report.Share(); got < *shared.Share {
		t.Errorf("%.1f%% came from memory, at least %.1f%% should", 100*got, 100**shared.Share)
	}
}
