package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// watcher has one watch after the other.
type watcher struct {
	*Crowd
	via          *ask.Client
	strict, slow bool
	// resumes is the last watch of a strict one, and where it ended, if the next may go on there.
	resumes *wish
	// pause is how long it waits before the next one, at most.
	pause time.Duration
}

// wish is what is asked for.
type wish struct {
	selection
	form    load.Form
	initial bool
	// from is the revision; 0 is any, and -1 the newest state.
	from int64
	// timeout of the request in seconds; 0: the client ends it.
	timeout int
	lasts   time.Duration
}

// watching is a watch of a strict watcher.
type watching struct {
	target string
	ended  bool

	mu sync.Mutex
	account
}

func (w *watching) told(e oracle.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// lacks is an error as long as something is to be told that was not yet, unless the watch has ended.
func (w *watching) lacks(h *History) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	return h.lacks(w.account)
}

// choose chooses what to ask for.
func (w *watcher) choose() wish {
	if w.resumes != nil && rand.IntN(2) == 0 {
		return *w.resumes
	}
	q := wish{selection: selection{Kind: w.Kinds[rand.IntN(len(w.Kinds))]}}
	switch dice := rand.IntN(20); {
	case dice < 8:
		q.Kind, q.node = w.Pods, nodeOf()
	case dice < 12:
		q.label, q.value = shadeLabel, shadeOf(1+rand.IntN(shades))
	case dice < 15:
		q.namespace = w.Namespaces[rand.IntN(len(w.Namespaces))]
	case dice < 17:
		q.namespace, q.name = w.Namespaces[rand.IntN(len(w.Namespaces))], load.NameOf(rand.IntN(w.Names))
	}
	var forms []load.Form
	for _, c := range w.Collections {
		if c.Kind == q.Kind {
			forms = append(forms, c.Form)
		}
	}
	q.form = forms[rand.IntN(len(forms))]
	recent := int64(w.Load.Ledger.Recent()) // #nosec G115 -- a revision
	switch dice := rand.IntN(10); {
	case dice < 4 && recent > 0:
		q.from = recent
	case dice < 6 && recent > 0:
		q.initial, q.from = true, recent
	case dice < 8:
		q.initial, q.from = true, -1
	default:
		q.initial = true
	}
	return q
}

// target is the path with the query, in canonical form.
func (q wish) target() string {
	v := url.Values{"watch": {"true"}}
	switch {
	case q.node != "":
		v.Set("fieldSelector", "spec.nodeName="+q.node)
	case q.name != "":
		v.Set("fieldSelector", "metadata.name="+q.name)
	case q.label != "":
		v.Set("labelSelector", q.label+"="+q.value)
	}
	if q.from >= 0 {
		v.Set("resourceVersion", strconv.FormatInt(q.from, 10))
	}
	if q.initial {
		v.Set("resourceVersionMatch", "NotOlderThan")
		v.Set("sendInitialEvents", "true")
	}
	if q.initial || rand.IntN(2) == 0 {
		v.Set("allowWatchBookmarks", "true")
	}
	if q.timeout > 0 {
		v.Set("timeoutSeconds", strconv.Itoa(q.timeout))
	}
	return q.Path(q.namespace) + "?" + v.Encode()
}

// accept is the form of a list, of one object.
func accept(f load.Form) string {
	return strings.Replace(f.Accept, "PartialObjectMetadataList", "PartialObjectMetadata", 1)
}

// live has one watch and its end, and reports whether there may be another: until alive ends. What
// was told is judged then, as long as ctx lives.
func (w *watcher) live(ctx, alive context.Context) bool {
	q := w.choose()
	w.resumes = nil
	q.lasts, q.timeout = shortest+rand.N(longest-shortest), 0
	if rand.IntN(3) == 0 {
		q.timeout = int(q.lasts.Seconds())
	}
	w.pause = min(2*max(w.pause, pause), patience)
	if err := w.watch(ctx, alive, q); err == nil {
		w.pause = pause
	} else if alive.Err() == nil {
		w.note(err.Error())
	}
	return poll.Pause(alive, rand.N(w.pause))
}

// errHeader is that no header came in time.
var errHeader = errors.New("no header in time")

// watch has a watch from its beginning to its end. The error says why there was none.
func (w *watcher) watch(ctx, alive context.Context, q wish) error {
	one, cancel := context.WithCancelCause(alive)
	defer cancel(nil)
	newest := int64(w.Load.Ledger.Newest(q.Kind)) // #nosec G115 -- a revision
	header := time.AfterFunc(w.via.Timeout, func() { cancel(errHeader) })
	target := q.target()
	resp, err := w.via.With("Accept", accept(q.form)).Open(one, http.MethodGet, target, nil)
	if !header.Stop() || err != nil {
		if errors.Is(context.Cause(one), errHeader) {
			return errHeader
		}
		return errors.New("no answer")
	}
	defer resp.Body.Close()
	source := ask.Answer{Code: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%d [%s]", resp.StatusCode, source.Source())
	}
	hit := source.FromMemory()
	defer w.opened(hit, source.Source())()
	if q.timeout == 0 {
		end := time.AfterFunc(q.lasts, func() {
			w.ending.RLock()
			defer w.ending.RUnlock()
			cancel(nil)
		})
		defer end.Stop()
	}
	switch {
	case w.strict:
		if q.from < 0 {
			q.from = newest
		}
		err = w.follow(ctx, q, target, resp, hit)
	case w.slow:
		w.count(func(c *Counts) { c.Slow++ })
		for err == nil && poll.Pause(one, time.Second) {
			_, err = io.CopyN(io.Discard, resp.Body, 100)
		}
		return nil // it is cut off, or is left behind
	default:
		var n int64
		n, err = io.Copy(io.Discard, resp.Body)
		w.count(func(c *Counts) { c.Bytes += n })
	}
	switch {
	case err == nil || one.Err() != nil: // it ended, or was ended here
	case hit:
		w.Load.Tally.Wrong("GET %s (%s), from memory, did not end in order: %v", target, q.form.Name, err)
	default:
		w.count(func(c *Counts) { c.Broken++ })
	}
	return nil
}

// opened counts a watch, until the function that it returns is called.
func (w *watcher) opened(hit bool, source string) (closed func()) {
	open, hits := w.open.Add(1), w.fromMemory.Load()
	if hit {
		hits = w.fromMemory.Add(1)
	} else {
		w.note(source)
	}
	w.count(func(c *Counts) {
		c.Begun++
		c.Most, c.MostHits = max(c.Most, open), max(c.MostHits, hits)
		if hit {
			c.Hits++
		}
	})
	return func() {
		w.open.Add(-1)
		if hit {
			w.fromMemory.Add(-1)
		}
	}
}

// follow reads a watch to its end, and judges it. It returns how reading ended, if not in order.
func (w *watcher) follow(ctx context.Context, q wish, target string, resp *http.Response, hit bool) error {
	a := &watching{target: target, account: account{selection: q.selection, initial: q.initial, from: uint64(q.from)}} // #nosec G115 -- not negative
	w.mu.Lock()
	if w.watched == nil {
		w.watched = map[*watching]bool{}
	}
	w.watched[a] = true
	w.mu.Unlock()
	refusal, err := a.read(events.NewReader(resp.Body, resp.Header.Get("Content-Type")))
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	w.mu.Lock()
	delete(w.watched, a)
	w.mu.Unlock()

	wrong := w.History.await(ctx, a.last())
	if wrong == nil {
		wrong = w.History.judge(a.account)
	}
	source := ask.Answer{Header: resp.Header}.Source()
	if wrong != nil && ctx.Err() == nil {
		w.Load.Tally.Wrong("GET %s (%s), %s: %v", target, q.form.Name, source, wrong)
	}
	from, begun := a.begun()
	if begun && !refusal {
		next := q
		next.initial, next.from = false, int64(max(from, a.last())) // #nosec G115 -- a revision
		w.resumes = &next
	}
	cut := err == nil && !begun && !refusal
	if cut {
		w.note(fmt.Sprintf("a streaming list, %s, that ended in order after %d initial events", source, len(a.events)))
	}
	w.count(func(c *Counts) {
		c.Judged++
		c.Events += len(a.events)
		if hit {
			c.JudgedHits++
		}
		if cut {
			c.Cut++
		}
		if cut && hit {
			c.CutHits++
		}
	})
	return err
}

// read reads events to the end, which is a refusal if the last was an ERROR.
func (w *watching) read(in *events.Reader) (refusal bool, err error) {
	for {
		e, err := readEvent(in)
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case e.Type == watch.Error:
			return true, nil
		}
		w.told(e)
	}
}
