package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// learnItemTimeout bounds learnItemForm. It is short, since the feed reads no events meanwhile.
	learnItemTimeout = 5 * time.Second
	// learnWatchTimeout is the timeout of the streaming list from which the form of watches is learned. It is longer than
	// kube-apiserver waits for its watch cache before it begins to answer.
	learnWatchTimeout = 10 * time.Second
)

// learnWatch learns the form of the upstream's watches, and of the bookmark that ends the initial events of a streaming list.
// For this, it opens a streaming list of a name that cannot exist, so that the bookmark is the only event. It returns nil if no
// watches are served.
//
// An upstream without streaming lists does one of two things:
//
//   - It answers with an error.
//   - It never sends the bookmark. Then states are loaded in pages for pagesOnlyDuration.
//
// In both cases Form.InitialEndBookmark is nil, and only watches that begin at a revision are served.
func (f *feed) learnWatch(ctx context.Context, learned source.Learned) (*watch.Form, error) {
	// If the collection is empty, no event could be compared, so cannotWrite is false. checkEventForm compares each event that
	// comes later.
	cannotWrite := learned.Envelope.ItemForm.Known && !learned.Reproducible
	if !f.servesWatches || cannotWrite {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(source.WithPurpose(ctx, source.ForLearn), source.AnswerTimeout)
	defer cancel()
	form := &watch.Form{Envelope: learned.Envelope}
	err := f.learnStreamingList(ctx, form)
	switch {
	case err == nil:
		return form, nil
	case errors.Is(err, errNoEndBookmark):
		f.pagesOnlyUntil = time.Now().Add(pagesOnlyDuration)
	case source.IsAnswer(err) && !refusesResource(err): // the upstream gives no streaming lists, at least now: go on below
	default:
		return nil, err
	}
	// Without a streaming list, an ordinary watch still shows the content type.
	f.log.Info("the upstream gives no streaming list, so those of clients are forwarded", "error", err)
	s, err := f.watchNothing(ctx, url.Values{"resourceVersion": {"0"}}, source.ShortWatch)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	form.ContentType = s.ContentType
	return form, nil
}

// learnStreamingList opens a streaming list of a name that cannot exist. From the list, it sets three fields of form:
// ContentType, Compressed and InitialEndBookmark.
func (f *feed) learnStreamingList(ctx context.Context, form *watch.Form) error {
	s, err := f.watchNothing(ctx, url.Values{
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
	}, learnWatchTimeout)
	if err != nil {
		return err
	}
	defer s.Stop()
	form.ContentType = s.ContentType
	form.Compressed = s.Compressed
	form.InitialEndBookmark, err = f.learnEndBookmark(ctx, s)
	return err
}

// learnEndBookmark learns the bookmark that ends the initial events of a streaming list. The list is of a name that cannot
// exist, so its first event should be this bookmark:
//
//	the first event                      learnEndBookmark returns
//	the bookmark                         the bookmark
//	not as listproxy would write it      nil, without an error
//	another bookmark                     errNoEndBookmark
//	none before the stream's timeout     errNoEndBookmark
func (f *feed) learnEndBookmark(ctx context.Context, s *source.Stream) (*wire.Bookmark, error) {
	select {
	case ev, ok := <-s.Events:
		if !ok {
			if s.EndedAtTimeout(time.Now()) {
				return nil, errNoEndBookmark
			}
			return nil, s.Err
		}
		b, err := wire.LearnBookmark(f.source.Encoding(), ev)
		if err != nil {
			return nil, nil //nolint:nilerr // listproxy could not write the event with the same bytes
		}
		if !ev.EndsInitial { // not from a kube-apiserver, which sends no other bookmark first
			return nil, errNoEndBookmark
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watchNothing opens a watch of a name that cannot exist.
func (f *feed) watchNothing(ctx context.Context, query url.Values, timeout time.Duration) (*source.Stream, error) {
	namespace, selector := f.source.EmptySelection()
	query.Set("fieldSelector", selector)
	query.Set("allowWatchBookmarks", "true")
	return f.source.Watch(ctx, namespace, query, timeout)
}

// learnItemForm learns the form of items: how a list writes an object. It does nothing if the form is known already. The form
// is unknown if the collection was empty when it was loaded. Then ev is the event of the first object since. learnItemForm
// compares ev with a list of that object at ev's revision. If it returns errFirstObject, the state must be loaded anew.
//
// A new load would mostly show the form, but it would end clients' watches. So a list of one object is tried first.
func (f *feed) learnItemForm(ctx context.Context, ev wire.Event) error {
	if f.envelope.ItemForm.Known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, learnItemTimeout)
	defer cancel()
	query := source.ExactQuery(ev.Meta.Revision)
	query.Set("fieldSelector", source.NameSelector(ev.Meta.Name))
	list, err := f.source.ListRetrying(ctx, ev.Meta.Namespace, query)
	if err != nil {
		return fmt.Errorf("%w: %w", errFirstObject, err)
	}
	envelope, err := f.source.EnvelopeOf(ctx, list, f.envelope)
	if err != nil {
		return fmt.Errorf("%w: %w", errFirstObject, err)
	}
	if len(list.Items) != 1 || !f.envelope.CanBeReplacedBy(envelope) {
		return errFirstObject // the object was deleted, or lists are written in another way now
	}
	envelope.ItemForm, err = wire.LearnItem(f.source.Encoding(), list.Items[0], ev)
	if err != nil {
		return err
	}
	f.envelope = envelope
	f.collection.setEnvelope(envelope)
	return nil
}

// checkEventForm is called for each event of the stream, and for the bookmark of a progress watch (a short watch up to a
// bookmark). It ends clients' watches if listproxy could not write ev with the upstream's bytes. From a bookmark, it also
// learns the form of bookmarks.
func (f *feed) checkEventForm(ev wire.Event) {
	broadcaster := f.collection.view.Load().broadcaster
	if broadcaster == nil {
		return
	}
	canWrite := ev.Reproducible
	if canWrite && ev.Type == wire.Bookmarked {
		bookmark, err := wire.LearnBookmark(f.source.Encoding(), ev)
		canWrite = err == nil && !ev.EndsInitial // the initial events have ended long before
		if canWrite {
			broadcaster.SetPlainBookmark(bookmark)
		}
	}
	if !canWrite {
		f.log.Warn("an event is written in an unknown form, so watches are forwarded", "revision", ev.Meta.Revision)
		f.collection.abortWatches()
	}
}

// lacksBookmark reports whether watches are served, but the form of their bookmarks is not known yet.
func (f *feed) lacksBookmark() bool {
	broadcaster := f.collection.view.Load().broadcaster
	return broadcaster != nil && broadcaster.Form().PlainBookmark == nil
}
