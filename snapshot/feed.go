package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// feed keeps one collection true. It is a small loop of its own instead of client-go's
// Reflector, which relists on every failed re-watch and goes on over events that its store
// refused; a history bears neither.
//
//	run ──► session: learn the frame ► load a state ► prove it ► follow the watch
//	  ▲                                                            │    ▲
//	  └── the span is closed or dropped ◄── 410, contradiction ────┘    └─ resume in place
type feed struct {
	source     source
	collection *Collection
	// loads is how many feeds may load at the same time.
	loads chan struct{}
	log   *slog.Logger
	// refusals is how long to wait after the next 403.
	refusals wait.Backoff
}

const (
	// watchTimeout is the shortest life of a watch; feeds add up to as much again, so that they
	// do not come back all at once.
	watchTimeout = 5 * time.Minute
	// shortWatch is the life of a watch that is there for the bookmark that the upstream sends
	// two seconds before the end. (kube-apiserver 1.36.3, measured: it comes after 0.7 to 1.1 s.)
	shortWatch = 3 * time.Second
	// seldom is how long a feed waits that failed for a reason that a retry does not cure.
	seldom = 2 * time.Minute
	// refusalGrace is how long a watch that was permitted is tried again after a 403: an API
	// server that has just started refuses everybody until it has read its roles.
	refusalGrace = 15 * time.Second
	// demandPause is the least time between two probes because somebody waits.
	demandPause = 500 * time.Millisecond
)

// errObject is the first object of a collection whose item form could not be learned while it
// was empty.
var errObject = errors.New("the first object of an empty collection: its form is to be learned")

func resumeBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}
}

func refusalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: seldom}
}

func sessionBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
}

// run feeds the collection until ctx ends. It waits for delay first.
func (f *feed) run(ctx context.Context, delay time.Duration) {
	defer f.collection.retire(Stopped)
	if !sleep(ctx, delay) {
		return
	}
	backoff := sessionBackoff()
	f.refusals = refusalBackoff()
	for ctx.Err() == nil {
		begun := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			backoff = sessionBackoff()
		}
		pause := f.settle(err, &backoff)
		f.log.Warn("collection cannot be followed", "error", err, "retry", pause.Round(time.Millisecond))
		sleep(ctx, pause)
	}
}

// settle makes the collection say what the end of a session means, and returns how long to
// wait before the next.
func (f *feed) settle(err error, backoff *wait.Backoff) time.Duration {
	c := f.collection
	var contradiction poisonError
	var back wentBackError
	switch {
	case errors.Is(err, errObject):
		c.close(Warming)
		return 0
	case errors.As(err, &contradiction):
		c.counters.poisoned.Add(1)
		c.drop(Warming)
	case errors.As(err, &back):
		c.drop(Warming)
	case errors.Is(err, errForm):
		c.drop(Form)
		return wait.Jitter(seldom, 1)
	case errors.Is(err, errFull):
		c.drop(Memory)
		return wait.Jitter(seldom, 1)
	case answered(err, http.StatusForbidden):
		c.close(NotPermitted)
		return f.refusals.Step()
	case answered(err, http.StatusNotFound):
		c.drop(Warming)
	default:
		c.close(Warming)
	}
	return backoff.Step()
}

// session loads a state, opens a span with it and follows the watch until the span is lost.
func (f *feed) session(ctx context.Context) error {
	frame, err := f.learn(ctx)
	if err != nil {
		return err
	}
	loaded, err := f.load(ctx, frame)
	if err != nil {
		return err
	}
	if err := f.prove(ctx, frame, loaded); err != nil {
		loaded.discard(f.collection.budget)
		return err
	}
	f.collection.open(loaded.state, loaded.size, loaded.revision, frame)
	f.refusals = refusalBackoff()
	f.log.Info("collection loaded", "revision", loaded.revision, "objects", loaded.state.len(), "bytes", loaded.size)
	return f.follow(ctx, frame, loaded.stream)
}

// follow keeps the span live: it reads the stream, and resumes it in place when it ends. It
// returns only when the span cannot go on.
func (f *feed) follow(ctx context.Context, frame *Frame, s *stream) error {
	backoff := resumeBackoff()
	var refused time.Time // since when the upstream has said 403
	for {
		if s != nil {
			begun := time.Now()
			behind, err := f.drain(ctx, frame, s)
			s.stop()
			if err != nil {
				return err
			}
			if behind {
				s, err = f.watch(ctx, shortWatch)
				if err == nil {
					continue
				}
			}
			if time.Since(begun) > time.Second {
				backoff = resumeBackoff()
			}
		}
		var err error
		s, err = f.resume(ctx)
		if err == nil {
			f.collection.counters.resumes.Add(1)
			refused = time.Time{}
			continue
		}
		if !answered(err, http.StatusForbidden) {
			refused = time.Time{}
		} else if refused.IsZero() {
			refused = time.Now()
		}
		if lost(err) || ctx.Err() != nil || !refused.IsZero() && time.Since(refused) > refusalGrace {
			return err
		}
		pause := backoff.Step()
		f.log.Info("watch not resumed yet", "error", err, "retry", pause.Round(time.Millisecond))
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// lost reports whether an error ends the span at once: the history is gone upstream, or there
// is doubt. After all other errors the watch is resumed in place.
func lost(err error) bool {
	var contradiction poisonError
	var back wentBackError
	return errors.As(err, &contradiction) || errors.As(err, &back) ||
		errors.Is(err, errObject) || errors.Is(err, errFull) ||
		answered(err, http.StatusGone, http.StatusNotFound)
}

// resume opens a watch where the live span ends. Before, it asks the upstream how far it is: a
// watch from a revision of the future would be silent and tell nothing.
func (f *feed) resume(ctx context.Context) (*stream, error) {
	if _, err := f.ask(ctx); err != nil {
		return nil, err
	}
	return f.watch(ctx, watchTimeout+rand.N(watchTimeout))
}

// watch opens a watch where the live span ends.
func (f *feed) watch(ctx context.Context, timeout time.Duration) (*stream, error) {
	from, first := f.collection.seam()
	s, err := f.source.watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(from, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
	if err != nil {
		return nil, err
	}
	s.from, s.first = from, first
	return s, nil
}

// ask reads the upstream's current revision and holds it against the floor. It reports whether
// the span covers that revision already.
func (f *feed) ask(ctx context.Context) (covered bool, err error) {
	floor := f.collection.floor()
	ctx, cancel := context.WithTimeout(ctx, f.collection.limits.Silence/6)
	defer cancel()
	f.collection.counters.probes.Add(1)
	_, rev, err := f.source.probe(ctx)
	if err != nil {
		return false, err
	}
	return f.collection.observe(rev, floor)
}

// drain applies what the stream delivers until it ends. It reports behind when the upstream is
// further than the stream has told: then a short watch from the same place brings a bookmark
// within seconds. The error is not nil only if the span is lost.
func (f *feed) drain(ctx context.Context, frame *Frame, s *stream) (behind bool, err error) {
	heartbeat := f.collection.limits.Silence / 2
	// Reopening a watch is no sign of life.
	silence := time.NewTimer(heartbeat - time.Since(f.collection.view.Load().heard))
	defer silence.Stop()
	p := prober{ask: f.ask}
	defer p.stop()
	for {
		select {
		case ev, ok := <-s.events:
			if !ok {
				if lost(s.err) {
					return false, s.err
				}
				f.log.Debug("watch ended", "error", s.err)
				return false, nil
			}
			silence.Reset(heartbeat)
			if err := f.take(frame, s, ev); err != nil {
				return false, err
			}
		case <-f.collection.demand:
			if time.Since(p.begun) >= demandPause {
				p.start(ctx)
			}
		case <-silence.C:
			silence.Reset(heartbeat)
			p.start(ctx)
		case a := <-p.answers:
			p.answers = nil
			switch {
			case lost(a.err):
				return false, a.err
			case a.err != nil:
				f.log.Info("probe failed, the watch is resumed", "error", a.err)
				return false, nil // it may be as dead as the probe
			case !a.covered && s.timeout > shortWatch:
				return true, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// prober runs one probe at a time beside the reading of a stream.
type prober struct {
	ask     func(context.Context) (bool, error)
	begun   time.Time
	answers chan probed // nil while no probe is under way
	cancel  context.CancelFunc
}

type probed struct {
	covered bool
	err     error
}

func (p *prober) start(ctx context.Context) {
	if p.answers != nil {
		return
	}
	p.begun = time.Now()
	ctx, p.cancel = context.WithCancel(ctx)
	out := make(chan probed, 1)
	p.answers = out
	go func() {
		covered, err := p.ask(ctx)
		out <- probed{covered, err}
	}()
}

// stop waits for the probe under way, so that none speaks for a time that is over.
func (p *prober) stop() {
	if p.cancel != nil {
		p.cancel()
	}
	if p.answers != nil {
		<-p.answers
	}
}

// take applies one event.
func (f *feed) take(frame *Frame, s *stream, ev event) error {
	if was, err := s.meet(ev); was || err != nil {
		return err
	}
	if ev.kind == "BOOKMARK" {
		if rev := ev.meta.revision; s.from <= rev && rev < f.collection.view.Load().to() {
			return nil // another API server, which is not as far yet
		}
		return f.collection.progress(ev.meta.revision)
	}
	ch, err := f.change(frame, ev)
	if err != nil {
		return err
	}
	return f.collection.apply(ch)
}

// change makes what the collection takes of an event.
func (f *feed) change(frame *Frame, ev event) (change, error) {
	form := frame.item
	if !form.known {
		return change{}, errObject
	}
	m := ev.meta
	if m.apiVersion != form.apiVersion || m.kind != form.kind {
		return change{}, poison("an event with a %s %s", m.apiVersion, m.kind)
	}
	key, err := f.key(m)
	if err != nil {
		return change{}, err
	}
	ch := change{key: key, revision: m.revision}
	switch ev.kind {
	case "DELETED":
		ch.kind = deleted
		return ch, nil
	case "ADDED":
		ch.kind = added
	case "MODIFIED":
		ch.kind = modified
	}
	bytes, err := form.cut(ev.object)
	if err != nil {
		return change{}, err
	}
	ch.object = &Object{Key: key, Revision: m.revision, Bytes: bytes}
	return ch, nil
}

// key is an object's place in the order of the API server.
func (f *feed) key(m objectMeta) (string, error) {
	if m.name == "" || (m.namespace != "") != f.source.resource.Namespaced {
		return "", poison("an object without a usable name")
	}
	return joinKey(m.namespace, m.name), nil
}

// sleep waits, and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
