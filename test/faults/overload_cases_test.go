package faults

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var overloadFor = flag.Duration("faults.overload", 0,
	"how long the API server has too much to do; 0: ten minutes with -faults.all, else forty seconds")

const (
	// answeredLate is how late an API server with too much to do answers.
	answeredLate = 20 * time.Second
	// knownBefore is how many revisions of each collection are asked for before a fault and after it.
	knownBefore = 8
)

// quotas and idlers are written before a case begins, and not while it lasts.
var (
	quotas = kind{APIVersion: "v1", Name: "ResourceQuota", Plural: "resourcequotas"}
	idlers = kind{APIVersion: "idle.test/v1", Name: "Idler", Plural: "idlers"}
)

// overloadCases are those of an API server that has too much to do: it answers nothing that
// listproxy asks for by itself as it should. Watches that have been answered go on. What has not
// changed must not be loaded again for that, and no revision may be lost.
func overloadCases() []faultCase {
	long := func(name string, on *stage, treat treatment) faultCase {
		return faultCase{
			name: name, runs: inFull, stage: on, args: []string{"--history-window", "1h", "--idle-timeout", "0"},
			before: (*scene).writeUntold, keeps: append(slices.Clone(changing), quotas, idlers),
			fault: func(s *scene) time.Time {
				return s.overloaded(treat, func() { poll.Pause(s.Context(), overloadLasts()) })
			},
		}
	}
	return []faultCase{
		long("slow", slow, late), long("refusing", refusing, half),
		// For less long, where quiet collections are of no interest: the soak has these, too.
		{name: "answered_late", soaks: true, stage: quiet, fault: func(s *scene) time.Time {
			return s.overloaded(late, func() { poll.Pause(s.Context(), max(answeredLate+load.Bound, *duration)) })
		}},
		{name: "half_refused", soaks: true, stage: quiet, fault: func(s *scene) time.Time { return s.overloaded(half, s.hold) }},
	}
}

// treatment is what becomes of a request: true if it has been answered.
type treatment func(http.ResponseWriter, *http.Request) bool

// late answers, after a time.
func late(_ http.ResponseWriter, r *http.Request) bool {
	poll.Pause(r.Context(), answeredLate)
	return false
}

// half refuses half of all.
func half(w http.ResponseWriter, _ *http.Request) bool {
	return rand.IntN(2) == 0 && hop.Refuse(w, http.StatusTooManyRequests)
}

// overloaded does something while what listproxy asks for by itself, and for no caller, is treated so.
// (It asks as the caller what the caller may.) It returns when that was over.
func (s *scene) overloaded(treat treatment, do func()) time.Time {
	s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+s.plane.Token(controlplane.Feed) && treat(w, r)
	})
	do()
	s.hop.OnRequest(nil)
	return time.Now()
}

func overloadLasts() time.Duration {
	switch {
	case *overloadFor > 0:
		return *overloadFor
	case *all:
		return 10 * time.Minute
	}
	return 2 * answeredLate // what is asked for at first is answered late, and what follows from that, too
}

// writeUntold writes what is to be quiet, and makes the API server forget when.
func (s *scene) writeUntold() {
	s.Helper()
	ctx := s.Context()
	s.must(s.create(ctx, kinds.Definitions, idlers.Definition(kinds.Version(fieldsOf{"type": "object"}))))
	for _, k := range []kind{quotas, idlers} {
		for i := range names {
			s.must(s.create(ctx, k.Path(s.namespaces[0]), k.Object(load.NameOf(i))))
		}
	}
	_, err := s.touch(ctx, configMaps, s.namespaces[0]) // the newest revision is another one
	s.must(err)
	s.must(s.plane.StopAPIServer())
	s.must(s.plane.StartAPIServer(ctx))
	for _, k := range []kind{quotas, idlers} {
		s.must(poll.Retry(ctx, k.Plural+" to be older than what can be told", func() error { return s.untold(ctx, k) }))
	}
}

// untold returns an error if the API server can tell the newest change of a kind.
func (s *scene) untold(ctx context.Context, k kind) error {
	l, err := load.Read(ctx, s.direct, k.Path(""))
	if err != nil {
		return err
	}
	newest := uint64(0)
	for _, object := range l.Objects {
		revision, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		newest = max(newest, revision)
	}
	a, err := s.direct.Get(ctx, k.Path("")+"?timeoutSeconds=1&watch=true&resourceVersion="+strconv.FormatUint(newest-1, 10))
	if err == nil && !bytes.Contains(a.Body, []byte(`"code":410`)) {
		err = fmt.Errorf("a watch from before %d: %s", newest, a)
	}
	return err
}

// cost is what listproxy says that it has done for a collection so far.
type cost struct{ loads, losses float64 }

func (s *scene) cost(c collection) (sum cost) {
	s.Helper()
	labels := map[string]string{
		"resource": schema.GroupResource{Group: c.Kind.Group(), Resource: c.Kind.Plural}.String(), "representation": c.Form.Name,
	}
	url := s.proxies.All()[0].AdminURL() + "/metrics"
	var err error
	sum.losses, _, err = soak.Sum(s.Context(), http.DefaultClient, url, "listproxy_feed_restarts_total", labels)
	s.must(err)
	labels["request"] = "load"
	sum.loads, _, err = soak.Sum(s.Context(), http.DefaultClient, url, "listproxy_feed_requests_total", labels)
	s.must(err)
	return sum
}

// remember notes which revisions are known of some kinds. The function that it returns demands that
// they are known still, and that nothing was loaded again of what nobody writes.
func (s *scene) remember(of []kind) (kept func()) {
	s.Helper()
	known, before := map[collection][]uint64{}, map[collection]cost{}
	for _, c := range load.Collections(of...) {
		s.must(poll.Retry(s.Context(), "enough revisions that are known of "+c.Kind.Plural, func() error {
			// What came before the collection was loaded is not known.
			some := s.Ledger.Recent()
			if _, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.Exactly(some)}); err != nil {
				return err
			}
			if !slices.Contains(known[c], some) {
				known[c] = append(known[c], some)
			}
			if len(known[c]) < knownBefore {
				return errors.New("not yet")
			}
			return nil
		}))
		before[c] = s.cost(c)
		if before[c].loads == 0 {
			s.Errorf("%s as %s: no load is counted", c.Kind.Plural, c.Form.Name)
		}
	}
	return func() {
		s.Helper()
		for _, c := range load.Collections(of...) {
			now, err := s.touch(s.Context(), configMaps, s.namespaces[0])
			s.must(err)
			s.must(poll.Retry(s.Context(), "what is kept, after the fault", func() error {
				_, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.NotOlderThan(now)})
				return err
			}))
			after := s.cost(c)
			what := fmt.Sprintf("%s as %s, loaded %.0f times before and %.0f after, lost %.0f times", c.Kind.Plural, c.Form.Name,
				before[c].loads, after.loads-before[c].loads, after.losses-before[c].losses)
			s.Log(what)
			if slices.Contains(s.quiet, c) && after != before[c] {
				s.Errorf("%s: nothing in it has changed", what)
			}
			for _, revision := range known[c] {
				if source := s.sourceOf(c, revision); !strings.Contains(source, "; hit") {
					s.Errorf("%s: revision %d was known, and is not: %s", what, revision, source)
				}
			}
		}
	}
}

// sourceOf asks for a revision. Who answers, and that this is right, is seen where the review of what
// the caller may did not fail.
func (s *scene) sourceOf(c collection, revision uint64) (source string) {
	poll.Reviewed(s.Context(), patience, func() string {
		_, a, err := s.Put(s.Context(), s.via, question{Collection: c, Query: ask.Exactly(revision)}, true, revision)
		source = fmt.Sprintf("%s, %v", a.Source(), err)
		return a.Source()
	})
	return source
}
