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
	// learnFirstTimeout bounds how long the feed, which reads nothing else meanwhile, learns from a first object.
	learnFirstTimeout = 5 * time.Second
	// learnTimeout is longer than kube-apiserver waits for its watch cache before it begins to answer.
	learnTimeout = 10 * time.Second
)

// learnFirst learns the form of items from the first object of a collection that was empty: from an
// event of the stream, and a list of that object at exactly the event's revision. Those who follow
// the collection notice nothing. After errObject the state must be loaded again, with the form.
func (f *feed) learnFirst(ctx context.Context, ev wire.Event) error {
	if f.envelope.Item.Known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, learnFirstTimeout)
	defer cancel()
	query := source.Exactly(ev.Meta.Revision)
	query.Set("fieldSelector", source.Named(ev.Meta.Name))
	l, err := f.source.Insist(ctx, ev.Meta.Namespace, query)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	envelope, err := f.source.EnvelopeOf(ctx, l, f.envelope)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	if len(l.Items) != 1 || !f.envelope.AgreesWith(envelope) {
		return errObject // it was deleted, or lists are written in another way by now
	}
	if envelope.Item, err = wire.LearnItem(f.source.Encoding(), l.Items[0], ev); err != nil {
		return err
	}
	f.envelope = envelope
	f.collection.setEnvelope(envelope)
	return nil
}

// learnWatch learns how the upstream answers a watch, and writes the bookmark that ends the initial
// events, from a streaming list of a name that cannot exist. It returns nil if no watches are
// served. An upstream without streaming lists answers with an error, or never sends that bookmark: then only
// watches from a revision on are served.
func (f *feed) learnWatch(ctx context.Context, learned source.Learned) (*watch.Form, error) {
	if !f.watches || learned.Envelope.Item.Known && !learned.Framed {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(source.With(ctx, source.ForLearn), source.AnswerTimeout)
	defer cancel()
	namespace, selector := f.source.Nothing()
	nothing := url.Values{
		"fieldSelector":        {selector},
		"allowWatchBookmarks":  {"true"},
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
	}
	form := &watch.Form{Envelope: learned.Envelope}
	s, err := f.source.Watch(ctx, namespace, nothing, learnTimeout)
	if err == nil {
		defer s.Stop()
		form.ContentType, form.Compressed = s.ContentType, s.Compressed
		if form.InitialEnd, err = f.initialEnd(ctx, s); err == nil {
			return form, nil
		}
	}
	switch {
	case errors.Is(err, errNoEnd):
		f.noStreamingBefore = time.Now().Add(noStreamingFor)
	case !source.IsAnswer(err), refusesPages(err):
		return nil, err
	}
	f.log.Info("the upstream gives no streaming list, so those of clients are forwarded", "error", err)
	nothing.Del("sendInitialEvents")
	nothing.Del("resourceVersionMatch")
	nothing.Set("resourceVersion", "0")
	if s, err = f.source.Watch(ctx, namespace, nothing, source.ShortWatch); err != nil {
		return nil, err
	}
	defer s.Stop()
	form.ContentType = s.ContentType
	return form, nil
}

// initialEnd reads the bookmark that ends the initial events of a streaming list of nothing. It is
// nil if its form is unknown: bookmarks that cannot be written with the same bytes are not sent.
func (f *feed) initialEnd(ctx context.Context, s *source.Stream) (*wire.Bookmark, error) {
	select {
	case ev, ok := <-s.Events:
		if !ok && s.InOrder(time.Now()) {
			return nil, errNoEnd
		}
		if !ok {
			return nil, s.Err
		}
		b, err := wire.LearnBookmark(f.source.Encoding(), ev)
		if err != nil {
			return nil, nil //nolint:nilerr // its form is unknown
		}
		if !ev.Meta.EndsInitial { // kube-apiserver sends no other bookmark before it
			return nil, errNoEnd
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lacksBookmark says that watches are served, and it is not known yet how bookmarks are written.
func (f *feed) lacksBookmark() bool {
	broadcaster := f.collection.view.Load().broadcaster
	return broadcaster != nil && broadcaster.Form().Plain == nil
}

// checkForm compares an event with how listproxy would write it, and learns from bookmarks how they are
// written. If the bytes differ, neither this event nor later ones are sent to clients: their watches end.
func (f *feed) checkForm(ev wire.Event) {
	broadcaster := f.collection.view.Load().broadcaster
	if broadcaster == nil {
		return
	}
	known := ev.Framed
	if ev.Kind == wire.Bookmarked && known {
		plain, err := wire.LearnBookmark(f.source.Encoding(), ev)
		if known = err == nil && !ev.Meta.EndsInitial; known {
			broadcaster.Learn(plain)
		}
	}
	if !known {
		f.log.Warn("an event is written in an unknown form, so watches are forwarded", "revision", ev.Meta.Revision)
		f.collection.endWatches(broadcaster, false)
	}
}
