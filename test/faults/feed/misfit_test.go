package feed

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

var misfitFor = flag.Duration("feed.misfit", 0, "for how long TestMisfit asks for collections that do not fit; 0: until one has been refused")

const (
	fwdMemory = "listproxy; fwd=bypass; detail=memory"
	// misfitBound is the --cache-bytes, of which a tenth is always free.
	misfitBound, misfitBytes = "1Mi", 1 << 20
	// Of each kind there are ten times as many bytes.
	misfits, misfitSize = 200, 50 << 10
	// sampled is more objects than a feed looks at before it loads.
	sampled = 30
)

// TestMisfit: a collection that is far larger than the byte bound is not read to find that out, if
// its first objects tell.
//
// With -feed.misfit 10m there is one whose first objects do not tell, too, which is read again ever
// less often: the shortest pause is two minutes. It counts what the API server has to send for
// both. (That the pauses grow is held without waiting for them by
// TestWhatCannotFitIsAskedForEverLessOften of package snapshot.)
func TestMisfit(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plain := namespaced("v1", "ConfigMap", "configmaps", "")
	hidden := podTemplates
	kinds := []kind{plain}
	if *misfitFor > 0 {
		kinds = append(kinds, hidden)
	}
	c := ownCluster(t)
	ns := c.namespace(t, "misfit")
	for i := range misfits {
		for _, k := range kinds {
			size := misfitSize
			if k.Plural == hidden.Plural && i < sampled {
				size = 0
			}
			c.createSized(t, k, ns, fmt.Sprintf("object-%03d", i), size)
		}
	}
	r := newRig(t, c, rigOptions{args: []string{"--cache-bytes", misfitBound}})
	sent := r.countBytes()
	var reads reads
	r.onFault(func(_ http.ResponseWriter, req *http.Request) bool {
		reads.note(req)
		return false
	})
	begun := time.Now()
	for _, k := range kinds {
		r.until(k.Plural+" not to fit", func() error { return r.notKept(t, k) })
	}
	for poll.Pause(t.Context(), 10*pollEvery) && time.Since(begun) < *misfitFor {
		for _, k := range kinds {
			a, err := r.admin.Get(t.Context(), k.Path("")+"?limit=1&"+anyVersion().Encode())
			if err == nil && strings.Contains(a.Source(), "hit") {
				t.Fatalf("%s: %s", k.Plural, a)
			}
		}
	}
	for _, k := range kinds {
		at := reads.of(k, fullLoad)
		t.Logf("%s in %v: %d full lists, at %v; %d looks at the first objects; %.1f MiB in all, of %.1f MiB that there are and %.1f MiB that would fit",
			k.Plural, time.Since(begun).Round(time.Second), len(at), since(begun, at), len(reads.of(k, learns)),
			float64(sent(k))/(1<<20), float64(misfits*misfitSize)/(1<<20), float64(misfitBytes)/(1<<20))
	}
	if n := len(reads.of(plain, learns)); n == 0 {
		t.Error("its first objects were not looked at")
	}
	if n := len(reads.of(plain, fullLoad)); n != 0 {
		t.Errorf("%d full lists of what could be seen not to fit", n)
	}
	// A pause is some time, and up to as much again.
	at := reads.of(hidden, fullLoad)
	for i := 2; i < len(at); i++ {
		if before, now := at[i-1].Sub(at[i-2]), at[i].Sub(at[i-1]); now <= before {
			t.Errorf("a full list %v after the one before, which came %v after its own", now, before)
		}
	}
}

// notKept returns an error until a resource is forwarded because it does not fit.
func (r *rig) notKept(t *testing.T, k kind) error {
	a, err := r.admin.Get(t.Context(), k.Path("")+"?limit=1&"+anyVersion().Encode())
	if err == nil && a.Source() != fwdMemory {
		err = fmt.Errorf("it came from %q", a.Source())
	}
	return err
}

// createSized writes an object with an annotation of that size.
func (c *cluster) createSized(t *testing.T, k kind, namespace, name string, size int) {
	t.Helper()
	object := k.Object(name)
	object["metadata"] = fieldsOf{"name": name, "annotations": fieldsOf{"blob": strings.Repeat("x", size)}}
	c.write(t, http.MethodPost, k.Path(namespace), object)
}

// reads are requests of feeds, by when they came. Safe for concurrent use.
type reads struct {
	mu  sync.Mutex
	all []read
}

type read struct {
	request
	at time.Time
}

func (r *reads) note(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, read{request{req.URL.Path, req.URL.Query()}, time.Now()})
}

// of says when those of a sort came for a kind.
func (r *reads) of(k kind, sort func(url.Values) bool) (at []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.path == k.Path("") && sort(one.query) {
			at = append(at, one.at)
		}
	}
	return at
}

// since are times, as times since a first one.
func since(begun time.Time, at []time.Time) (all []time.Duration) {
	for _, one := range at {
		all = append(all, one.Sub(begun).Round(time.Second))
	}
	return all
}

// countBytes counts what feeds are sent, in lists and watches.
func (r *rig) countBytes() (of func(kind) int) {
	var mu sync.Mutex
	sent := map[string]int{}
	add := func(req *http.Request, n int) {
		if hop.Own(req) {
			mu.Lock()
			defer mu.Unlock()
			sent[req.URL.Path] += n
		}
	}
	r.hop.OnBody(func(req *http.Request, body []byte) []byte {
		add(req, len(body))
		return body
	})
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		add(req, len(line))
		return line, nil
	})
	return func(k kind) int {
		mu.Lock()
		defer mu.Unlock()
		return sent[k.Path("")]
	}
}
