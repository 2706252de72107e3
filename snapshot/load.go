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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// loadTimeout bounds a load: 5 minutes. The watch of a streaming list has a timeout of its own, of 5 to 10 minutes.
	loadTimeout = watchTimeout
	// loadSilence is the time after which a silent streaming list is given up.
	loadSilence = 30 * time.Second
	// loadSlotTimeout is the time after which a load gives its slot back and goes on. A slow load (a conversion webhook may
	// be slow) must not keep other feeds from loading.
	loadSlotTimeout = 10 * time.Second
	// oversizeFactor allows for rough estimates (see mayFit). For example, the bound on stored bytes is 5 GiB. Nine tenths of
	// it, 4.5 GiB, may be used. So a state is loaded if its estimated size is at most 9 GiB.
	oversizeFactor = 2
	// maxLikelyMean is the largest mean size of an object, in bytes, with which a state's size is estimated. For example, if
	// the first few of a thousand objects have 1 MiB each, the estimate is 16 MiB, and not 1 GiB (see mayFit).
	maxLikelyMean = 16 << 10
	// loadPageBytes is the estimated size of a page. Larger pages would hold much memory that the budget does not see: it
	// counts a page only once the page was read.
	loadPageBytes = 32 << 20
	// minLoadPage and maxLoadPage bound the limit of a page, in objects. Smaller pages would cost the upstream too much: for
	// each page, kube-apiserver 1.36 walks all objects after the page.
	minLoadPage = 50
	maxLoadPage = 2000
)

var (
	// errSlow says that a load was not complete after loadTimeout.
	errSlow = fmt.Errorf("a state did not come within %v", loadTimeout)
	// errNoEndBookmark says that a streaming list did not end with its bookmark.
	errNoEndBookmark = errors.New("a streaming list did not send the bookmark that ends it")
)

// stateLoad is a state that is being loaded or was loaded. The feed installs or discards it.
type stateLoad struct {
	budget *budget
	// envelope and watchForm are the forms of the upstream's lists and events. watchForm is nil if no watches are served.
	envelope  *wire.Envelope
	watchForm *watch.Form
	// meanSize is the estimated mean size of an object in bytes.
	meanSize int64
	state    index.Tree
	revision uint64
	// probe is the request for the state, which counts as a probe: the state has everything that was written before this
	// request was sent. (The request names no resourceVersion. kube-apiserver answers it with what etcd has when the request
	// comes, or later.)
	probe source.Probe
	// size is the number of bytes of the objects that have come. The budget counts these bytes already.
	size int64
	// stream is the watch that goes on from the state; nil if the state came in pages.
	stream *source.Stream
	// watchesUpToDate reports whether clients' watches have delivered all changes that led to the state.
	watchesUpToDate bool
}

// load reads a complete state by a streaming list, or page by page if the upstream gives no streaming list. It first waits for
// one of the few load slots. It returns errFull if the state does not fit into the budget.
func (f *feed) load(ctx context.Context, learned source.Learned) (*stateLoad, error) {
	slots := f.collection.shared.loadSlots
	if err := slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	releaseSlot := sync.OnceFunc(func() { slots.Release(1) }) // at the end or after loadSlotTimeout
	defer releaseSlot()
	slotTimer := time.AfterFunc(loadSlotTimeout, releaseSlot) // a longer load goes on without its slot
	defer slotTimer.Stop()
	if !mayFit(learned, f.collection.shared.budget) {
		return nil, errFull
	}
	if time.Now().Before(f.pagesOnlyUntil) {
		return f.loadWith(ctx, learned, f.loadPages)
	}
	loaded, streamErr := f.loadWith(ctx, learned, f.loadStream)
	if streamErr == nil || !canLoadPages(streamErr) {
		return loaded, streamErr
	}
	f.log.Info("the streaming list was refused, or ended early or not at all: the state is loaded page by page", "error", streamErr)
	loaded, err := f.loadWith(ctx, learned, f.loadPages)
	if err == nil && errors.Is(streamErr, errNoEndBookmark) {
		f.pagesOnlyUntil = time.Now().Add(pagesOnlyDuration)
	}
	return loaded, err
}

// canLoadPages reports whether err concerns only the streaming list, so that the state can be loaded page by page. That is so
// in three cases:
//
//   - The upstream refuses the streaming list. From 1.34 on, kube-apiserver answers 500 if etcd cannot report its progress
//     (before 3.4.31, and from 3.5.0 to 3.5.12). A kube-apiserver without streaming lists answers 422.
//   - The streaming list ends early: a kube-apiserver that has just started ends a watch that is more than ten events behind.
//   - The bookmark that ends the streaming list does not come.
func canLoadPages(err error) bool {
	isRefused := source.IsAnswer(err) && !refusesResource(err)
	return isRefused || errors.Is(err, wire.ErrEnded) || errors.Is(err, errNoEndBookmark)
}

// refusesResource reports whether the upstream would refuse any list of the resource now, since it has refused a streaming list
// or a watch with this error.
func refusesResource(err error) bool {
	return source.Answered(err, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusNotAcceptable, http.StatusTooManyRequests)
}

// mayFit reports whether a state may fit into the budget. The size of the state is estimated from the number of its objects and
// the mean size of the first few. The first few may happen to be very large, and that alone must not keep the resource out of
// memory. So the estimate uses maxLikelyMean at most.
func mayFit(learned source.Learned, b *budget) bool {
	if b.crowded() {
		return false // a load must not drive out other collections
	}
	estimate := learned.Count * min(learned.Mean, maxLikelyMean)
	return estimate/oversizeFactor <= b.crowdedAbove()
}

// loadFunc completes a load: it is loadStream or loadPages.
type loadFunc func(context.Context, *stateLoad) error

// loadWith loads a state with read, which is loadStream or loadPages. After an error it discards the state.
func (f *feed) loadWith(ctx context.Context, learned source.Learned, read loadFunc) (*stateLoad, error) {
	l := &stateLoad{
		budget:   f.collection.shared.budget,
		envelope: learned.Envelope,
		meanSize: learned.Mean,
		state:    index.NewTree(learned.Envelope.Paths.HasIndexed()),
		probe:    f.collection.shared.probes.Next(),
	}
	if err := read(ctx, l); err != nil {
		l.discard()
		return nil, err
	}
	return l, nil
}

// loadStream reads the initial events of a streaming list into l. Then the stream, l.stream, goes on as a watch.
func (f *feed) loadStream(ctx context.Context, l *stateLoad) error {
	s, err := f.source.Watch(source.WithPurpose(ctx, source.ForLoad), metav1.NamespaceAll, url.Values{
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks":  {"true"},
	}, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return err
	}
	l.stream = s
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, errSlow)
	defer cancel()
	silence := time.NewTimer(loadSilence)
	defer silence.Stop()
	highest := uint64(0) // the highest revision of an initial object
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return s.Err
			}
			silence.Reset(loadSilence)
			switch {
			case ev.Type != wire.Bookmarked:
				if err := f.addInitial(l, ev); err != nil {
					return err
				}
				highest = max(highest, ev.Meta.Revision)
			case ev.EndsInitial: // any other bookmark says nothing about the state, and is ignored
				if ev.Meta.Revision < highest {
					return wire.Inconsistent("a state at revision %d holds an object of revision %d", ev.Meta.Revision, highest)
				}
				l.revision = ev.Meta.Revision
				return nil
			}
		case <-silence.C:
			return fmt.Errorf("%w within %v", errNoEndBookmark, loadSilence)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// addInitial adds the object of an initial event to l.
func (f *feed) addInitial(l *stateLoad, ev wire.Event) error {
	change, err := f.newChange(l.envelope, ev)
	if err != nil {
		return err
	}
	old, err := change.applyTo(l.state)
	if err != nil {
		return err
	}
	return l.addBytes(sizeOf(change.object) - sizeOf(old))
}

// loadPages reads all pages of one list into l, at the revision of the first page. If a later page is answered 410, since the
// upstream has forgotten that revision, the feed begins another load.
func (f *feed) loadPages(ctx context.Context, l *stateLoad) error {
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, errSlow)
	defer cancel()
	likelyObjects := loadPageBytes / max(1, l.meanSize) // in a page of loadPageBytes
	limit := min(max(likelyObjects, minLoadPage), maxLoadPage)
	query := url.Values{"limit": {strconv.FormatInt(limit, 10)}}
	for {
		page, err := f.source.List(ctx, metav1.NamespaceAll, query)
		switch {
		case errors.Is(context.Cause(ctx), errSlow): // err only says that the list was canceled
			return errSlow
		case err != nil:
			return err
		case l.revision != 0 && page.Meta.Revision != l.revision:
			return wire.Inconsistent("a page at revision %d of a list at revision %d", page.Meta.Revision, l.revision)
		}
		l.revision = page.Meta.Revision
		for _, item := range page.Items {
			if err := f.addItem(l, item); err != nil {
				return err
			}
		}
		if page.Meta.Continue == "" {
			return nil
		}
		query.Set("continue", page.Meta.Continue)
	}
}

// addItem adds an item of a page to l.
func (f *feed) addItem(l *stateLoad, item []byte) error {
	if !l.envelope.ItemForm.Known { // there was no object when the form was learned
		return errFirstObject
	}
	m, err := f.source.Encoding().ParseItem(item)
	if err != nil {
		return wire.Inconsistent("an item cannot be decoded: %v", err)
	}
	if m.Revision == 0 {
		return fmt.Errorf("%w: an item without resourceVersion", wire.ErrForm)
	}
	key, err := f.source.Key(m)
	if err != nil {
		return err
	}
	o, err := f.newObject(l.envelope, key, m, bytes.Clone(item)) // without Clone, the object would keep the page's memory
	if err != nil {
		return err
	}
	if l.state.Set(o) != nil {
		return wire.Inconsistent("an object appears twice in one list")
	}
	return l.addBytes(o.Size())
}

// comparedObjects is the number of objects that compareLoaded compares. Two are enough to show the order of items, and a list
// that is limited to two mostly has a remainingItemCount.
const comparedObjects = 2

// compareLoaded compares the first page of a loaded state, byte by byte, with the upstream's at exactly that revision: the
// envelope, the form and order of the items, and the remaining count.
func (f *feed) compareLoaded(ctx context.Context, l *stateLoad) error {
	state := source.ListState{Revision: l.revision, Envelope: l.envelope, Tree: l.state}
	_, err := f.source.ComparePage(ctx, f.source.ListRetrying, state, firstKey, comparedObjects)
	if source.IsMismatch(err) {
		return fmt.Errorf("%w: the loaded state, written as a list, is not the upstream's list at revision %d", wire.ErrForm, l.revision)
	}
	if err != nil {
		return fmt.Errorf("the loaded state could not be compared with the upstream's: %w", err)
	}
	return nil
}

// addBytes adds bytes, which may be negative, to the size and to the budget. It returns errFull if the state grows in a crowded
// budget.
func (l *stateLoad) addBytes(bytes int64) error {
	l.size += bytes
	l.budget.add(bytes)
	if bytes > 0 && l.budget.crowded() {
		return errFull
	}
	return nil
}

// discard gives the bytes of a state that is not used back to the budget, and stops its stream.
func (l *stateLoad) discard() {
	l.budget.add(-l.size)
	if l.stream != nil {
		l.stream.Stop()
	}
}
