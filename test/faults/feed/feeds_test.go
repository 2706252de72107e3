package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// forgetChanges makes the API server forget when these kinds were written: it is restarted, and its
// watch caches begin with what is there then.
func (c *cluster) forgetChanges(t *testing.T, namespace string, kinds []kind) {
	t.Helper()
	c.create(t, configMaps, namespace, "later-than-all")
	expect.NoError(t, c.StopAPIServer())
	expect.NoError(t, c.StartAPIServer(t.Context()))
	for _, k := range kinds {
		err := poll.Retry(t.Context(), k.Plural+" to be older than what can be told", func() error {
			newest, err := c.newest(t, k)
			if err != nil {
				return err
			}
			a, err := c.direct.Get(t.Context(), k.Path("")+"?timeoutSeconds=1&watch=true&resourceVersion="+before(newest))
			if err == nil && !bytes.Contains(a.Body, []byte(`"code":410`)) {
				err = fmt.Errorf("a watch from before %d: %s", newest, a)
			}
			return err
		})
		expect.NoError(t, err)
	}
}

// feeds are those of one kind, in all forms in which these tests want it.
type feeds struct {
	*rig
	kind      kind
	namespace string
	turn      int // of writes elsewhere
}

// accepts are the forms: custom resources have no protobuf.
func (f *feeds) accepts() []string {
	if strings.Contains(f.kind.Group(), "feed.test") {
		return []string{ask.JSON}
	}
	return []string{ask.JSON, protobufType}
}

// begin loads all forms, and returns revisions that are known of each.
func (f *feeds) begin(t *testing.T, fresh bool) (known []string) {
	t.Helper()
	for _, accept := range f.accepts() {
		f.fromMemory(t, accept, f.kind.Path("")+"?resourceVersion=0")
	}
	if fresh {
		for i := range 3 {
			known = append(known, f.touch(t, f.kind, f.namespace, "object-1", fmt.Sprint(i)))
		}
	}
	for range 2 {
		known = append(known, f.goesOn(t))
	}
	f.stillKnown(t, known)
	return known
}

// goesOn writes elsewhere, and waits until the feeds have come to that revision.
func (f *feeds) goesOn(t *testing.T) (revision string) {
	t.Helper()
	revision = f.elsewhere(t)
	for _, accept := range f.accepts() {
		f.fromMemory(t, accept, f.kind.Path("")+"?"+notOlderThan(revision).Encode())
	}
	return revision
}

// elsewhere writes something else.
func (f *feeds) elsewhere(t *testing.T) (revision string) {
	t.Helper()
	f.turn++
	return f.create(t, configMaps, f.namespace, fmt.Sprintf("beside-%s-%d", f.kind.Plural, f.turn))
}

// stillKnown demands answers from memory with the states of these revisions.
func (f *feeds) stillKnown(t *testing.T, revisions []string) {
	t.Helper()
	for _, accept := range f.accepts() {
		var lost []string
		for _, revision := range revisions {
			a, err := f.admin.GetAs(t.Context(), accept, f.kind.Path("")+"?"+exactly(revision).Encode())
			expect.NoError(t, err)
			if a.Source() != hitExact {
				lost = append(lost, revision+": "+a.Source())
				continue
			}
			f.same(t, accept, f.kind.Path(""), exactly(revision))
		}
		if len(lost) > 0 {
			t.Errorf("of %d revisions that were known %d are lost, as %s: %s", len(revisions), len(lost), accept, strings.Join(lost, ", "))
		}
	}
}

// short reports whether a watch is one that is there for the bookmark at its end.
func short(q url.Values) bool { return q.Get("timeoutSeconds") == "3" }

// newest is the revision of the newest object of a kind.
func (c *cluster) newest(t *testing.T, k kind) (uint64, error) {
	t.Helper()
	a, err := c.direct.Get(t.Context(), k.Path(""))
	if err != nil {
		return 0, err
	}
	l, err := ask.ReadList(ask.JSON, a.Body)
	if err != nil {
		return 0, err
	}
	newest := uint64(0)
	for _, o := range l.Objects {
		revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
		if err != nil {
			return 0, err
		}
		newest = max(newest, revision)
	}
	return newest, nil
}

// before is the revision before another.
func before(revision uint64) string { return strconv.FormatUint(revision-1, 10) }

// restarts says how often what is known of a kind was lost, by cause, as the metrics tell it.
func (r *rig) restarts(t *testing.T, k kind) map[string]int {
	t.Helper()
	lost := map[string]int{}
	for _, s := range r.counted(t, k, "listproxy_feed_restarts_total") {
		lost[s.Labels["cause"]] += int(s.Value)
	}
	return lost
}

// counted is what a counter says of a kind, where it is not 0.
func (r *rig) counted(t *testing.T, k kind, name string) []soak.Series {
	t.Helper()
	all, err := soak.Read(t.Context(), http.DefaultClient, r.proxy.AdminURL()+"/metrics", name)
	expect.NoError(t, err)
	return slices.DeleteFunc(all, func(s soak.Series) bool {
		plural, _, _ := strings.Cut(s.Labels["resource"], ".")
		return plural != k.Plural || s.Value == 0
	})
}
