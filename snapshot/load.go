package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// loadSilence is the time for which a streaming list may be silent before it is given up, and loadFor how long a
	// load may take in all.
	loadSilence = 30 * time.Second
	loadFor     = watchTimeout
	// turnFor is the longest time that a load keeps others from loading: one that only trickles, as where a
	// conversion webhook is slow, holds up nobody else.
	turnFor = 10 * time.Second
	// A state is not read at all if it seems to be oversizeFactor times as large as the room for it.
	oversizeFactor = 2
	// likelySize is the largest mean size, in bytes, that is assumed from the first few objects: a few
	// large ones at the beginning must not keep the resource out of memory.
	likelySize = 16 << 10
	// initialLimit is the page size of a paginated initial load. For every page, kube-apiserver 1.36
	// walks all objects that come after it, so small pages are expensive.
	initialLimit = 2000
)

var (
	errSlow = fmt.Errorf("a state did not come within %v", loadFor)
	// errNoEnd says that a streaming list was not ended by its bookmark.
	errNoEnd = errors.New("a streaming list did not send the bookmark that ends it")
)

// load reads a complete state: by a streaming list, or page by page where the upstream gives none, ends it
// early, or does not send the bookmark that ends it. (A kube-apiserver that has just started ends a watch that is more than ten events behind. From 1.34
// on it answers 500 if etcd cannot tell its progress: before 3.4.31, and from 3.5.0 to 3.5.12.) Few feeds begin
// to load at the same time, and none whose state would not fit.
func (f *feed) load(ctx context.Context, learned source.Learned) (*loaded, error) {
	select {
	case f.loadSlots <- struct{}{}:
		over := sync.OnceFunc(func() { <-f.loadSlots })
		defer over()
		defer time.AfterFunc(turnFor, over).Stop()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !fits(learned, f.collection.budget, f.measuredMean) {
		f.measuredMean = 0 // the next try measures again: the objects that were read may be larger than the others
		return nil, errFull
	}
	if time.Now().Before(f.noStreamingBefore) {
		return f.loadWith(ctx, learned, f.loadPages)
	}
	l, err := f.loadWith(ctx, learned, f.loadStream)
	if source.IsAnswer(err) && !refusesPages(err) || errors.Is(err, wire.ErrEnded) || errors.Is(err, errNoEnd) {
		f.log.Info("the streaming list was refused, or ended early or not at all: the state is loaded page by page", "error", err)
		noEnd := errors.Is(err, errNoEnd)
		if l, err = f.loadWith(ctx, learned, f.loadPages); err == nil && noEnd {
			f.noStreamingBefore = time.Now().Add(noStreamingFor)
		}
	}
	return l, err
}

// refusesPages reports whether the upstream would refuse the pages of a list, too, and not only the
// streaming list.
func refusesPages(err error) bool {
	return source.Answered(err, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusNotAcceptable, http.StatusTooManyRequests)
}

// fits reports whether there may be room for a state, judged by the number of its objects. measuredMean
// is the mean size of the objects in the last state that did not fit, or 0 if there was none; it is
// better than the guess from the first few objects.
func fits(l source.Learned, b *budget, measuredMean int64) bool {
	if measuredMean > 0 {
		return l.Count*measuredMean <= b.most()
	}
	return l.Count*min(l.Mean, likelySize)/oversizeFactor <= b.most()
}

// loadWith has a state read, and gives its bytes back if that fails.
func (f *feed) loadWith(ctx context.Context, learned source.Learned, read func(context.Context, source.Learned, *loaded) error) (*loaded, error) {
	l, err := newLoaded(learned.Envelope, learned.Count*learned.Mean, f.collection.budget, f.collection.probes.Next())
	if err != nil {
		return nil, err
	}
	if err := read(ctx, learned, l); err != nil {
		f.measure(l, err)
		l.discard(f.collection.budget)
		return nil, err
	}
	l.endReservation(f.collection.budget)
	return l, nil
}

// measure remembers the mean size of the objects of a state that did not fit.
func (f *feed) measure(l *loaded, err error) {
	if n := int64(l.state.Len()); errors.Is(err, errFull) && n > 0 {
		f.measuredMean = l.size / n
	}
}

// loadStream reads the initial events of a streaming list. The watch goes on from there.
func (f *feed) loadStream(ctx context.Context, learned source.Learned, l *loaded) error {
	s, err := f.source.Watch(source.With(ctx, source.ForLoad), "", url.Values{
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks":  {"true"},
	}, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return err
	}
	l.stream = s
	silence := time.NewTimer(loadSilence)
	defer silence.Stop()
	late := time.NewTimer(loadFor)
	defer late.Stop()
	newest := uint64(0)
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return s.Err
			}
			silence.Reset(loadSilence)
			if ev.Kind == wire.Bookmarked {
				if !ev.Meta.EndsInitial {
					continue
				}
				if ev.Meta.Revision < newest {
					return wire.Inconsistent("a state at revision %d holds an object of revision %d", ev.Meta.Revision, newest)
				}
				l.revision = ev.Meta.Revision
				return nil
			}
			newest = max(newest, ev.Meta.Revision)
			ch, err := f.stateChange(learned.Envelope, ev)
			if err != nil {
				return err
			}
			old, err := ch.applyTo(l.state)
			if err != nil {
				return err
			}
			if err := l.count(ch.object, old, f.collection.budget); err != nil {
				return err
			}
		case <-silence.C:
			return fmt.Errorf("%w within %v", errNoEnd, loadSilence)
		case <-late.C:
			return errSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pageSize is the number of objects that a page of an initial load has, so that a page has about 32 MiB: its
// bytes are counted only after it was read.
func pageSize(mean int64) int64 {
	const bytes, least = 32 << 20, 50
	return max(least, min(initialLimit, bytes/max(1, mean)))
}

// loadPages reads all pages of one list. After a 410 in the middle the next session begins again.
func (f *feed) loadPages(ctx context.Context, learned source.Learned, l *loaded) error {
	ctx, cancel := context.WithTimeoutCause(ctx, loadFor, errSlow)
	defer cancel()
	query := url.Values{"limit": {strconv.FormatInt(pageSize(learned.Mean), 10)}}
	for {
		page, err := f.source.List(ctx, "", query)
		if errors.Is(context.Cause(ctx), errSlow) {
			return errSlow
		}
		if err != nil {
			return err
		}
		if l.revision != 0 && page.Meta.Revision != l.revision {
			return wire.Inconsistent("a page at revision %d of a list at revision %d", page.Meta.Revision, l.revision)
		}
		l.revision = page.Meta.Revision
		for _, item := range page.Items {
			if !learned.Envelope.Item.Known {
				return errObject
			}
			m, err := f.source.Encoding().Item(item)
			if err != nil {
				return wire.Inconsistent("an item cannot be decoded: %v", err)
			}
			key, err := f.source.Key(m)
			if err != nil {
				return err
			}
			o, err := f.object(learned.Envelope, key, m, bytes.Clone(item))
			if err != nil {
				return err
			}
			if l.state.Set(o) != nil {
				return wire.Inconsistent("an object appears twice in one list")
			}
			if err := l.count(o, nil, f.collection.budget); err != nil {
				return err
			}
		}
		if page.Meta.Continue == "" {
			return nil
		}
		query.Set("continue", page.Meta.Continue)
	}
}

// prove compares the first page of the loaded state with the upstream's at exactly that revision,
// byte by byte: the envelope, the form and the order of the items, the count.
func (f *feed) prove(ctx context.Context, envelope *wire.Envelope, l *loaded) error {
	state := source.ListState{Revision: l.revision, Envelope: envelope, Tree: l.state}
	err := (&source.Comparison{Source: f.source, Insists: true}).Page(ctx, state, "", 2)
	if source.IsMismatch(err) {
		return fmt.Errorf("%w: the loaded state, written as a list, is not the upstream's list at revision %d", wire.ErrForm, l.revision)
	}
	if err != nil {
		return fmt.Errorf("the loaded state could not be compared with the upstream's: %w", err)
	}
	return nil
}

// loaded is a complete state, and the watch that goes on from it if there is one yet.
type loaded struct {
	state    index.Tree
	revision uint64
	// Probe is the request for the state, which says how new the state is: kube-apiserver answers a
	// list or a streaming list of the newest state with what etcd has at that time, or later.
	source.Probe
	// size is the number of bytes that have come, reserved how many of the budget were reserved before: the larger of
	// the two is counted.
	size, reserved int64
	stream         *source.Stream
}

// newLoaded returns an empty state, and reserves about size bytes of the budget for it. The size is
// a guess from a few objects, which must not keep out other resources: at most half of the free
// budget is reserved.
func newLoaded(envelope *wire.Envelope, size int64, b *budget, asked source.Probe) (*loaded, error) {
	if b.crowded() { // this resource must not drive out another
		return nil, errFull
	}
	size = min(size, b.free()/2)
	b.add(size)
	return &loaded{state: index.NewTree(envelope.Paths.Indexed()), Probe: asked, reserved: size}, nil
}

// count counts an object that came into the state, and what it replaced.
func (l *loaded) count(o, old *index.Object, b *budget) error {
	size := int64(0)
	if o != nil {
		size += o.Size()
	}
	if old != nil {
		size -= old.Size()
	}
	before := max(l.size, l.reserved)
	l.size += size
	more := max(l.size, l.reserved) - before
	b.add(more)
	if more > 0 && b.crowded() {
		return errFull
	}
	return nil
}

// endReservation counts only the bytes that have come from now on.
func (l *loaded) endReservation(b *budget) {
	b.add(l.size - max(l.size, l.reserved))
	l.reserved = 0
}

// discard gives back the budget of a state that is not used.
func (l *loaded) discard(b *budget) {
	b.add(-max(l.size, l.reserved))
	if l.stream != nil {
		l.stream.Stop()
	}
}
