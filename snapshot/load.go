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
	// loadSilence is the time for which a streaming list may be silent before it is given up. loadTimeout bounds a load.
	loadSilence = 30 * time.Second
	loadTimeout = watchTimeout
	// loadSlotTimeout is the time after which a load gives its slot back, though it goes on: a slow one, as with a slow
	// conversion webhook, must not keep others from loading.
	loadSlotTimeout = 10 * time.Second
	// oversizeFactor is how many times larger than the room for it a state may look, and is still read: the size is
	// estimated from a few objects.
	oversizeFactor = 2
	// maxLikelyMean bounds the mean size, in bytes, that is assumed from the first few objects: a few large ones at
	// the beginning must not keep the resource out of memory.
	maxLikelyMean = 16 << 10
	// initialLimit is the page size of a paginated initial load. For every page, kube-apiserver 1.36
	// walks all objects that come after it, so small pages are expensive.
	initialLimit = 2000
)

var (
	errSlow = fmt.Errorf("a state did not come within %v", loadTimeout)
	// errNoEnd says that a streaming list was not ended by its bookmark.
	errNoEnd = errors.New("a streaming list did not send the bookmark that ends it")
)

// load reads a complete state by a streaming list. If the upstream refuses that, ends it early or does not send the
// bookmark that ends it, the state is read page by page. (A kube-apiserver that has just started ends a watch that is
// more than ten events behind. From 1.34 on it answers 500 if etcd cannot report its progress, as etcd before 3.4.31
// and from 3.5.0 to 3.5.12.) Only a few feeds begin to load at the same time. A state that would not fit is not loaded.
func (f *feed) load(ctx context.Context, learned source.Learned) (*loaded, error) {
	select {
	case f.loadSlots <- struct{}{}:
		release := sync.OnceFunc(func() { <-f.loadSlots })
		defer release()
		defer time.AfterFunc(loadSlotTimeout, release).Stop()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !mayFit(learned, f.collection.budget) {
		return nil, errFull
	}
	if time.Now().Before(f.noStreamingBefore) {
		return f.loadWith(ctx, learned, f.loadPages)
	}
	l, err := f.loadWith(ctx, learned, f.loadStream)
	if (source.IsAnswer(err) && !refusesPages(err)) || errors.Is(err, wire.ErrEnded) || errors.Is(err, errNoEnd) {
		f.log.Info("the streaming list was refused, or ended early or not at all: the state is loaded page by page", "error", err)
		noEnd := errors.Is(err, errNoEnd)
		if l, err = f.loadWith(ctx, learned, f.loadPages); err == nil && noEnd {
			f.noStreamingBefore = time.Now().Add(noStreamingFor)
		}
	}
	return l, err
}

// refusesPages reports whether an error of a streaming list shows that the upstream would refuse pages of a list, too.
func refusesPages(err error) bool {
	return source.Answered(err, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusNotAcceptable, http.StatusTooManyRequests)
}

// mayFit reports whether there may be room for a state, judged by the number of its objects and their mean size.
func mayFit(l source.Learned, b *budget) bool {
	return l.Count*min(l.Mean, maxLikelyMean)/oversizeFactor <= b.maxUncrowded()
}

// loadWith calls read to fill an empty state. If that fails, the budget gets the state's bytes back.
func (f *feed) loadWith(ctx context.Context, learned source.Learned, read func(context.Context, source.Learned, *loaded) error) (*loaded, error) {
	l, err := newLoaded(learned.Envelope, learned.Count*learned.Mean, f.collection.budget, f.collection.probes.Next())
	if err != nil {
		return nil, err
	}
	if err := read(ctx, learned, l); err != nil {
		l.discard(f.collection.budget)
		return nil, err
	}
	l.endReservation(f.collection.budget)
	return l, nil
}

// loadStream reads the initial events of a streaming list. The stream goes on as a watch.
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
	timeout := time.NewTimer(loadTimeout)
	defer timeout.Stop()
	newest := uint64(0)
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return s.Err
			}
			silence.Reset(loadSilence)
			if ev.Type == wire.Bookmarked {
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
		case <-timeout.C:
			return errSlow
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pageSize returns how many objects of mean bytes fill a page of about 32 MiB. Pages are small because a page counts in
// the budget only when all of it has been read.
func pageSize(mean int64) int64 {
	const pageBytes, minObjects = 32 << 20, 50
	return max(minObjects, min(initialLimit, pageBytes/max(1, mean)))
}

// loadPages reads all pages of one list. A 410 in the middle ends the load, and the next session loads anew.
func (f *feed) loadPages(ctx context.Context, learned source.Learned, l *loaded) error {
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, errSlow)
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

// compareLoaded compares the first page of a loaded state with the upstream's at exactly that revision, byte by byte:
// the envelope, the form and order of the items, and the remaining count.
func (f *feed) compareLoaded(ctx context.Context, envelope *wire.Envelope, l *loaded) error {
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

// loaded is a state that is being loaded, and the stream that goes on from it, if there is one yet.
type loaded struct {
	state    index.Tree
	revision uint64
	// Probe is the request for the state. The state is as new as that: kube-apiserver answers a list or a streaming
	// list of the newest state with what etcd has when the request comes, or later.
	source.Probe
	// size is the number of bytes that have come. reserved is the number that was reserved in the budget before. The
	// budget counts the larger of the two.
	size, reserved int64
	stream         *source.Stream
}

// newLoaded returns an empty state, and reserves budget for it. estimate is a guess from a few objects, which must
// not keep out other resources: at most half of the free budget is reserved.
func newLoaded(envelope *wire.Envelope, estimate int64, b *budget, asked source.Probe) (*loaded, error) {
	if b.crowded() { // this resource must not drive out another
		return nil, errFull
	}
	reserved := min(estimate, b.free()/2)
	b.add(reserved)
	return &loaded{state: index.NewTree(envelope.Paths.HasIndexed()), Probe: asked, reserved: reserved}, nil
}

// count updates the budget for an object that came into the state and one that it replaced; either may be nil.
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

// endReservation gives back what was reserved and did not come.
func (l *loaded) endReservation(b *budget) {
	b.add(l.size - max(l.size, l.reserved))
	l.reserved = 0
}

// discard gives back the budget of a state that is not used, and stops its stream.
func (l *loaded) discard(b *budget) {
	b.add(-max(l.size, l.reserved))
	if l.stream != nil {
		l.stream.Stop()
	}
}
