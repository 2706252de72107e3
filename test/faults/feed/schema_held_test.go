package feed

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

var jugs = kind{"jugs.feed.test/v1", "Jug", "jugs", false, widgets.rest}

// TestSchemaChangeHeldBack: the stream of definitions was cut and opened again, and a change is on its way that was missed
// meanwhile. The stream's header has come, which says nothing of that: until its list has, no custom resource is
// answered from memory.
func TestSchemaChangeHeldBack(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k, ns := jugs, "schema-held-back"
	r := newRig(t, shared, rigOptions{args: []string{"--schema-quarantine", "3s"}})
	define(t, r, k, ns)
	known := learned(t, r, k, ns)
	ways := []url.Values{anyVersion(), notOlderThan(known[0]), exactly(known[0]), firstPage(known[1])}

	var body hop.Gate // of the streams of definitions
	var opened atomic.Int32
	body.Shut()
	t.Cleanup(body.Open)
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		if req.URL.Path == definitions {
			opened.Add(1)
			if err := body.Pass(req.Context()); err != nil {
				return nil, err
			}
		}
		return line, nil
	})
	r.hop.CutAll()
	r.until("the stream of definitions again", func() error {
		if opened.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	setDefault(t, r, k)
	for range 60 { // some seconds, in which a stream that was just opened would have settled
		for _, q := range ways {
			r.until("an answer", func() error {
				a, err := r.tryNew(k.list(ns), q)
				if err == nil && a.FromMemory() {
					err = poll.Wrong(fmt.Sprintf("%s came from %q", q.Encode(), a.Source()))
				}
				return err
			})
		}
		poll.Pause(t.Context(), 50*time.Millisecond)
	}
	body.Open()
	r.awaitNew(k, ns, known)
	later := r.create(t, k, ns, "later")
	r.await(hitNotOlderThan, k.list(ns), notOlderThan(later))
	r.expect(hitExact, k.list(ns), exactly(later))
}
