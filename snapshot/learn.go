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
	// learnFirstTimeout bounds learning from a first object: the feed reads nothing else meanwhile.
	learnFirstTimeout = 5 * time.Second
	// learnTimeout is longer than kube-apiserver waits for its watch cache before it begins to answer.
	learnTimeout = 10 * time.Second
)

// learnFirst learns the form of items from the first object of a collection that was empty. It compares the event of
// the stream with a list of that object at exactly the event's revision. Clients' watches go on. After errObject the
// state must be loaded anew, and the form is learned then.
func (f *feed) learnFirst(ctx context.Context, ev wire.Event) error {
	if f.envelope.Item.Known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, learnFirstTimeout)
	defer cancel()
	query := source.Exactly(ev.Meta.Revision)
	query.Set("fieldSelector", source.Named(ev.Meta.Name))
	list, err := f.source.Insist(ctx, ev.Meta.Namespace, query)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	envelope, err := f.source.EnvelopeOf(ctx, list, f.envelope)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	if len(list.Items) != 1 || !f.envelope.AgreesWith(envelope) {
		return errObject // the object was deleted, or lists are written in another way by now
	}
	if envelope.Item, err = wire.LearnItem(f.source.Encoding(), list.Items[0], ev); err != nil {
		return err
	}
	f.envelope = envelope
	f.collection.setEnvelope(envelope)
	return nil
}

// learnWatch learns the form of the upstream's watches, and of the bookmark that ends the initial events, from a
// streaming list of a name that cannot exist. It returns nil if no watches are served. An upstream without streaming
// lists answers with an error, or never sends that bookmark: then only watches from a revision on are served.
func (f *feed) learnWatch(ctx context.Context, learned source.Learned) (*watch.Form, error) {
	if !f.watches || learned.Envelope.Item.Known && !learned.Reproducible {
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
		if form.InitialEnd, err = f.learnInitialEnd(ctx, s); err == nil {
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

// learnInitialEnd learns the bookmark that ends the initial events from a streaming list of nothing. It returns nil if
// listproxy could not write that bookmark with the same bytes.
func (f *feed) learnInitialEnd(ctx context.Context, s *source.Stream) (*wire.Bookmark, error) {
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
			return nil, nil //nolint:nilerr // its form is not one that could be written
		}
		if !ev.Meta.EndsInitial { // kube-apiserver sends no other bookmark before it
			return nil, errNoEnd
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lacksBookmark reports whether watches are served, but the form of bookmarks is not known yet.
func (f *feed) lacksBookmark() bool {
	broadcaster := f.collection.view.Load().broadcaster
	return broadcaster != nil && broadcaster.Form().Plain == nil
}

// checkForm checks that listproxy would write an event with the upstream's bytes, and learns the form of bookmarks. If
// the bytes would differ, clients' watches end, and neither this event nor later ones are sent.
func (f *feed) checkForm(ev wire.Event) {
	broadcaster := f.collection.view.Load().broadcaster
	if broadcaster == nil {
		return
	}
	known := ev.Reproducible
	if ev.Type == wire.Bookmarked && known {
		plain, err := wire.LearnBookmark(f.source.Encoding(), ev)
		if known = err == nil && !ev.Meta.EndsInitial; known {
			broadcaster.SetBookmark(plain)
		}
	}
	if !known {
		f.log.Warn("an event is written in an unknown form, so watches are forwarded", "revision", ev.Meta.Revision)
		f.collection.endWatches(broadcaster, false)
	}
}
