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
	// loadTimeout bounds a load.
	loadTimeout = watchTimeout
	// loadSilence is the duration for which a streaming list may be silent before it is given up.
	loadSilence = 30 * time.Second
	// loadSlotTimeout is the duration after which a load gives its slot back, though it goes on: a slow load, as with a
	// slow conversion webhook, must not keep other feeds from loading.
	loadSlotTimeout = 10 * time.Second
	// A state is read even if it looks up to oversizeFactor times larger than the room for it: its size is estimated
	// from a few objects.
	oversizeFactor = 2
	// maxLikelyMean bounds the mean size, in bytes, that is assumed from the first few objects: a few large ones at
	// the beginning must not keep the resource out of memory.
	maxLikelyMean = 16 << 10
	// A page of a load has about loadPageBytes, which count in the budget only when all of the page has been read. It
	// has at most maxLoadPage objects, and not less than minLoadPage: for every page, kube-apiserver 1.36 walks all
	// objects that come after it.
	loadPageBytes = 32 << 20
	minLoadPage   = 50
	maxLoadPage   = 2000
)

var (
	errSlow = fmt.Errorf("a state did not come within %v", loadTimeout)
	// errNoEnd says that a streaming list did not end with its bookmark.
	errNoEnd = errors.New("a streaming list did not send the bookmark that ends it")
)

// load reads a complete state by a streaming list, or else page by page. Only a few feeds begin to load at the same
// time. A state that would not fit is not loaded: the error is errFull.
//
// Pages are read if the upstream refuses the streaming list, ends it early or does not send the bookmark that ends it.
// A kube-apiserver that has just started ends a watch that is more than ten events behind. From 1.34 on it answers 500
// if etcd cannot report its progress, as etcd before 3.4.31 and from 3.5.0 to 3.5.12.
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
	hasNoEnd := errors.Is(err, errNoEnd)
	refused := source.IsAnswer(err) && !refusesPages(err)
	if !refused && !hasNoEnd && !errors.Is(err, wire.ErrEnded) {
		return l, err
	}
	f.log.Info("the streaming list was refused, or ended early or not at all: the state is loaded page by page", "error", err)
	l, err = f.loadWith(ctx, learned, f.loadPages)
	if err == nil && hasNoEnd {
		f.noStreamingBefore = time.Now().Add(noStreamingFor)
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
func (f *feed) loadWith(
	ctx context.Context, learned source.Learned, read func(context.Context, source.Learned, *loaded) error,
) (*loaded, error) {
	l, err := newLoaded(learned, f.collection.budget, f.collection.probes.Next())
	if err != nil {
		return nil, err
	}
	if err := read(ctx, learned, l); err != nil {
		l.discard()
		return nil, err
	}
	l.endReservation()
	return l, nil
}

// loadStream reads the initial events of a streaming list into l. The stream then goes on as a watch, l.stream.
func (f *feed) loadStream(ctx context.Context, learned source.Learned, l *loaded) error {
	s, err := f.source.Watch(source.WithPurpose(ctx, source.ForLoad), "", url.Values{
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
			switch {
			case ev.Type != wire.Bookmarked:
				if err := f.addInitial(learned.Envelope, l, ev); err != nil {
					return err
				}
				newest = max(newest, ev.Meta.Revision)
			case !ev.Meta.EndsInitial: // it says nothing of the state
			case ev.Meta.Revision < newest:
				return wire.Inconsistent("a state at revision %d holds an object of revision %d", ev.Meta.Revision, newest)
			default:
				l.revision = ev.Meta.Revision
				return nil
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

// addInitial adds the object of an initial event to a state.
func (f *feed) addInitial(envelope *wire.Envelope, l *loaded, ev wire.Event) error {
	ch, err := f.stateChange(envelope, ev)
	if err != nil {
		return err
	}
	old, err := ch.applyTo(l.state)
	if err != nil {
		return err
	}
	return l.count(sizeOf(ch.object) - sizeOf(old))
}

// loadPageLimit returns the number of objects of a page of a load, if they have a mean size in bytes.
func loadPageLimit(mean int64) int64 {
	return min(max(loadPageBytes/max(1, mean), minLoadPage), maxLoadPage)
}

// loadPages reads all pages of one list. A 410 in the middle ends the load, and the next session loads anew.
func (f *feed) loadPages(ctx context.Context, learned source.Learned, l *loaded) error {
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, errSlow)
	defer cancel()
	query := url.Values{"limit": {strconv.FormatInt(loadPageLimit(learned.Mean), 10)}}
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
			if err := f.addItem(learned.Envelope, l, item); err != nil {
				return err
			}
		}
		if page.Meta.Continue == "" {
			return nil
		}
		query.Set("continue", page.Meta.Continue)
	}
}

// addItem adds an item of a page to a state.
func (f *feed) addItem(envelope *wire.Envelope, l *loaded, item []byte) error {
	if !envelope.Item.Known {
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
	o, err := f.object(envelope, key, m, bytes.Clone(item)) // else the object would hold the memory of the whole page
	if err != nil {
		return err
	}
	if l.state.Set(o) != nil {
		return wire.Inconsistent("an object appears twice in one list")
	}
	return l.count(o.Size())
}

// comparedObjects is the size of the page that compareLoaded compares: most collections then have a next page, so that
// the order of two items and the remaining count are compared, too.
const comparedObjects = 2

// compareLoaded compares the first page of a loaded state with the upstream's at exactly that revision, byte by byte:
// the envelope, the form and order of the items, and the remaining count.
func (f *feed) compareLoaded(ctx context.Context, envelope *wire.Envelope, l *loaded) error {
	state := source.ListState{Revision: l.revision, Envelope: envelope, Tree: l.state}
	comparison := source.Comparison{Source: f.source, RetriesIfBusy: true}
	_, err := comparison.ComparePage(ctx, state, "", comparedObjects)
	if source.IsMismatch(err) {
		return fmt.Errorf("%w: the loaded state, written as a list, is not the upstream's list at revision %d", wire.ErrForm, l.revision)
	}
	if err != nil {
		return fmt.Errorf("the loaded state could not be compared with the upstream's: %w", err)
	}
	return nil
}

// loaded is a state that is being loaded. It is either installed, or discarded.
type loaded struct {
	budget   *budget
	state    index.Tree
	revision uint64
	// askedBy is the request for the state. The state is as new as that: kube-apiserver answers a list or a streaming
	// list of the newest state with what etcd has when the request comes, or later.
	askedBy source.Probe
	// size is the number of bytes that have come. reserved is the number that was reserved in the budget before. The
	// budget counts the larger of the two.
	size, reserved int64
	// stream goes on from the state; nil if the state comes in pages.
	stream *source.Stream
}

// newLoaded returns an empty state, and reserves budget for it. The estimate is a guess from a few objects, and must
// not keep out other resources: at most half of the free budget is reserved.
func newLoaded(learned source.Learned, b *budget, askedBy source.Probe) (*loaded, error) {
	if b.crowded() { // this resource must not drive out another
		return nil, errFull
	}
	reserved := min(learned.Count*learned.Mean, b.free()/2)
	b.add(reserved)
	state := index.NewTree(learned.Envelope.Paths.HasIndexed())
	return &loaded{budget: b, state: state, askedBy: askedBy, reserved: reserved}, nil
}

// counted returns the number of bytes that the budget counts.
func (l *loaded) counted() int64 { return max(l.size, l.reserved) }

// count adds bytes to the size. It returns errFull if what the budget counts has grown, and little room is left.
func (l *loaded) count(size int64) error {
	before := l.counted()
	l.size += size
	growth := l.counted() - before
	l.budget.add(growth)
	if growth > 0 && l.budget.crowded() {
		return errFull
	}
	return nil
}

// endReservation gives back what was reserved and did not come.
func (l *loaded) endReservation() {
	l.budget.add(l.size - l.counted())
	l.reserved = 0
}

// discard gives back the budget of a state that is not used, and stops its stream.
func (l *loaded) discard() {
	l.budget.add(-l.counted())
	if l.stream != nil {
		l.stream.Stop()
	}
}
