package differential_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// The tests in this file break listproxy on purpose, in ways that it cannot notice itself, and
// demand that the comparison does.

// onlyConfigMaps is enough to see one wrong object.
var onlyConfigMaps = differential.Options{
	Bound: patience, Resources: []string{"configmaps"}, AdminOnly: true, PlainOnly: true,
}

// feedHop is a hop between listproxy and the API server.
func feedHop(t *testing.T) *hop.Hop {
	t.Helper()
	return hop.Run(t, shared.Plane.URL(), shared.Plane.CA())
}

// notices compares until there is a difference, and demands one of the kinds; of any if none is
// given.
func notices(t *testing.T, side *differential.Side, options differential.Options, kinds ...differential.Kind) {
	t.Helper()
	report := differential.NewReport()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	noticed := func() bool {
		found := report.Kinds()
		return len(kinds) == 0 && len(found) > 0 || slices.ContainsFunc(kinds, func(kind differential.Kind) bool { return found[kind] > 0 })
	}
	go func() {
		defer cancel()
		for !noticed() && poll.Pause(ctx, 50*time.Millisecond) {
		}
	}()
	differential.NewComparator(shared.Cluster, side, report, options).Run(ctx, *shared.Seed, 3)
	if !noticed() {
		t.Errorf("the comparison did not notice: %v", report)
	}
	t.Logf("noticed after %d comparisons", report.Comparisons())
}

// create creates a config map until the test ends.
func create(t *testing.T, namespace, name string) {
	t.Helper()
	r := resource(t, "configmaps")
	if _, err := shared.Create(t.Context(), r, namespace, name, map[string]any{"data": map[string]any{"of": name}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Delete(context.Background(), r, namespace, name, true) })
}

func TestNoticesDroppedEvent(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, kind := range []string{"ADDED", "DELETED"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h, name := feedHop(t), "dropped-"+strings.ToLower(kind)
			h.OnLine(func(_ *http.Request, line []byte) ([]byte, error) {
				if bytes.HasPrefix(line, []byte(`{"type":"`+kind)) && bytes.Contains(line, []byte(`"name":"`+name+`"`)) {
					return nil, nil
				}
				return line, nil
			})
			side := startBehind(t, h, "configmaps")
			shared.ChangeUntilEnd(t, 20)
			create(t, "team-a", name)
			if kind == "DELETED" {
				shared.Delete(t.Context(), resource(t, "configmaps"), "team-a", name, true)
			}
			notices(t, side, onlyConfigMaps, differential.Body)
		})
	}
}

// freezer holds back the lines of all watches, and nothing else.
type freezer struct {
	mu     sync.Mutex
	frozen chan struct{} // nil while lines pass
}

func (f *freezer) pass(r *http.Request, line []byte) ([]byte, error) {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen == nil {
		return line, nil
	}
	select {
	case <-frozen:
		return line, nil
	case <-r.Context().Done():
		return nil, errors.New("the watch ended in the ice")
	}
}

func (f *freezer) freeze(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	frozen := make(chan struct{})
	f.frozen = frozen
	t.Cleanup(func() { close(frozen) })
}

func TestNoticesFrozenFeed(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for name, test := range map[string]struct {
		args    []string
		bound   time.Duration
		notices bool
	}{
		// An Any may be as old as --staleness-bound, 90s: nothing but this check sees it.
		"believed": {nil, 2 * time.Second, true},
		// Past that bound listproxy does not believe itself any more.
		"not-believed-for-long": {[]string{"--staleness-bound", "6s"}, patience, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, ice := feedHop(t), &freezer{}
			h.OnLine(ice.pass)
			side := startBehind(t, h, "configmaps", test.args...)
			report := differential.NewReport()
			before := differential.NewComparator(shared.Cluster, side, report, onlyConfigMaps)
			configMaps, prefix := resource(t, "configmaps"), "ice-"+name+"-"
			if err := before.Freshness(t.Context(), configMaps, "team-a", prefix+"before"); err != nil || len(report.Kinds()) > 0 {
				t.Fatal(err, report)
			}
			ice.freeze(t)
			options := onlyConfigMaps
			options.Bound = test.bound
			options.OwnOnly = test.notices // a review that fails is enough for one answer to be the API server's
			under := differential.NewComparator(shared.Cluster, side, report, options)
			expect.NoError(t, under.Freshness(t.Context(), configMaps, "team-a", prefix+"under"))
			kinds := report.Kinds()
			if (kinds[differential.Frozen] > 0) != test.notices {
				t.Errorf("noticed: %v, should be: %v; %v", kinds, test.notices, report)
			}
			// Whatever the cache holds: who names a revision gets it.
			delete(kinds, differential.Frozen)
			if len(kinds) > 0 {
				t.Errorf("wrong answers: %v", report)
			}
		})
	}
}
