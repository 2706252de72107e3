package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// streamSilence is the time for which a watch may be silent before the resource is listed again. kube-apiserver
	// sends a bookmark about every minute, but none while its cache is where the watch began
	// (k8s.io/apiserver/pkg/storage/cacher, cacheWatcher.process): a silent watch need not be a dead one. What
	// is known counts until that list fails or has had pageTimeout: an API server that is slow is not another.
	streamSilence = 80 * time.Second
	// watchLeast is the time for which a watch is asked for, at least; at most it is twice as long. client-go's
	// reflectors do the same.
	watchLeast = 5 * time.Minute
	// A stream that has lasted for followHealthy has not failed: the next attempt is made soon. What fails for as
	// long is told.
	followHealthy = time.Minute
	// refusedRetry is the longest pause after a stream was refused, until somebody grants the right.
	refusedRetry = 5 * time.Minute
)

// reflector keeps what it reads of the objects of one resource, and tells what changes. It lists
// them, and then follows watches, one after the other, as long as each ends at its timeout. After anything
// else it lists again, and tells what has changed meanwhile: etcd may have been restored.
//
// It is not one of client-go's, since those do not say whether their watch is open
// (so that a change would be heard of), and wait for up to a minute before they open it again
// (https://github.com/kubernetes/kubernetes/issues/136943).
type reflector[V any] struct {
	// resource is its name, for the log.
	resource string
	from     *api
	// path is where its objects are, and labels the selector of those that are followed.
	path, labels string
	// read returns what is kept of an object.
	read func(*object) V
	// changed is called after each change, and for all that the first list has.
	changed func(change[V])
	// refusal, unless it is empty, is logged once if the resource may not be followed, or is not there: what
	// follows from that. grant is the right that would help.
	refusal, grant string
	// asOf is [Config.AsOf].
	asOf func(time.Time) time.Time
	log  *slog.Logger

	mu sync.RWMutex
	// known is what was read, by name (namespace/name); nil until there was a list.
	known map[string]V
	// refused reports whether it may not be listed or watched, or is not there.
	refused bool
	// open reports whether there is or was a watch, and nothing has failed since. heard is when the upstream last said something,
	// closed when something failed.
	open          bool
	heard, closed time.Time
}

// change is what has changed about an object.
type change[V any] struct {
	name string
	// was is nil if the object came, is if it went.
	was, is *V
	// first reports whether it was there when the resource was listed for the first time.
	first bool
}

// run follows the resource until ctx ends.
func (r *reflector[V]) run(ctx context.Context) {
	var retry, refusals wait.Backoff
	var failing time.Time // since when it could not be followed for long
	said := false         // the log has told that
	for first := true; ; first = false {
		began := time.Now()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if first || time.Since(began) >= followHealthy {
			// An API server that has just started refuses everybody until it has read its roles; one that goes on
			// refusing is to be left alone.
			retry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: 2 * time.Second}
			refusals = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: refusedRetry}
			failing, said = time.Now(), false
		}
		if !errors.Is(err, errSilent) {
			r.setOpen(false)
		}
		refused, pause := isRefused(err), &retry
		if refused {
			pause = &refusals
			r.mu.Lock()
			r.refused = true
			r.mu.Unlock()
		}
		delay := pause.Step()
		// A right that there never was is missed at once.
		warns := !said && (isWarning(err, failing) || refused && r.known == nil)
		switch {
		case warns && refused && r.refusal != "":
			r.log.WarnContext(ctx, r.refusal, "grant", r.grant, "error", err)
			said = true
		case warns && !refused:
			r.log.WarnContext(ctx, "what the API server serves cannot be followed for a minute", "stream", r.resource, "error", err)
			said = true
		default:
			r.log.DebugContext(ctx, "a stream ended and will be opened again", "stream", r.resource, "in", delay, "error", err)
		}
		if !clock.Sleep(ctx, delay) {
			return
		}
	}
}

// follow lists, and watches until something is amiss.
func (r *reflector[V]) follow(ctx context.Context) error {
	revision, err := r.list(ctx)
	for err == nil {
		revision, err = r.watch(ctx, revision)
	}
	return err
}

// list takes in the newest state, and returns its revision.
func (r *reflector[V]) list(ctx context.Context) (revision string, err error) {
	listed := map[string]V{}
	var changes []change[V]
	revision, err = r.from.list(ctx, r.path, r.labels, func(o *object) {
		c := r.compare(o)
		listed[c.name] = *c.is
		changes = append(changes, c)
	})
	if err != nil {
		return "", err
	}
	for name, was := range r.known { // which only this goroutine changes
		if _, there := listed[name]; !there {
			changes = append(changes, change[V]{name: name, was: &was})
		}
	}
	first := r.known == nil
	r.mu.Lock()
	r.known, r.heard = listed, time.Now()
	r.mu.Unlock()
	for _, c := range changes {
		c.first = first
		r.tell(c)
	}
	return revision, nil
}

var (
	errSilent = errors.New("the watch was silent for too long")
	errEarly  = errors.New("the watch ended before its time")
)

// watch follows what happens after a revision until the watch comes to its timeout, and returns the
// revision up to which it has told everything.
func (r *reflector[V]) watch(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	seconds := int64((watchLeast + rand.N(watchLeast)) / time.Second) // #nosec G404 -- no secret
	asked := time.Now()
	resp, err := r.from.get(ctx, r.path, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "labelSelector": {r.labels},
		"resourceVersion": {revision}, "timeoutSeconds": {strconv.FormatInt(seconds, 10)},
	})
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.setOpen(true)
	for in := json.NewDecoder(resp.Body); ; {
		kind, o, err := readEvent(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", errors.Join(context.Cause(ctx), err)
		}
		silence.Reset(streamSilence)
		revision = r.take(kind, o)
		r.setOpen(true)
	}
	// What the upstream counts by is another clock.
	if early := time.Since(asked) < time.Duration(seconds-1)*time.Second; early || ctx.Err() != nil {
		return "", errors.Join(context.Cause(ctx), errEarly)
	}
	return revision, nil
}

// take takes in an event, and returns its revision.
func (r *reflector[V]) take(kind watch.EventType, o *object) (revision string) {
	if kind == watch.Bookmark {
		return o.Metadata.ResourceVersion
	}
	c := r.compare(o)
	r.mu.Lock()
	if kind == watch.Deleted {
		c.is = nil
		delete(r.known, c.name)
	} else {
		r.known[c.name] = *c.is
	}
	r.mu.Unlock()
	r.tell(c)
	return o.Metadata.ResourceVersion
}

// compare reads an object, and says what was known of it before.
func (r *reflector[V]) compare(o *object) change[V] {
	is := r.read(o)
	c := change[V]{name: strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"), is: &is}
	if was, found := r.known[c.name]; found { // which only this goroutine changes
		c.was = &was
	}
	return c
}

// tell calls changed, if anything has changed of what is kept.
func (r *reflector[V]) tell(c change[V]) {
	if (c.was != nil || c.is != nil) && (c.was == nil || c.is == nil || !reflect.DeepEqual(*c.was, *c.is)) {
		r.changed(c)
	}
}

// setOpen notes that the upstream has said something on a watch now, or that a watch or a list has failed.
func (r *reflector[V]) setOpen(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case open:
		r.heard, r.refused = time.Now(), false
	case r.open:
		r.closed = time.Now()
	}
	r.open = open
}

// ready reports whether there was a list, or the resource may not be followed.
func (r *reflector[V]) ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known != nil || r.refused
}

// get returns what is known of an object. current: a change that is older than [snapshot.Skew] would be known,
// unless the API server itself is late to tell of it.
func (r *reflector[V]) get(name string) (v V, found, current bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, found = r.known[name]
	now := time.Now()
	if r.asOf != nil {
		now = r.asOf(now)
	}
	// By both clocks: after a machine was suspended its connections may be dead.
	heard := clock.Age(r.heard, now) <= streamSilence+pageTimeout
	follows := r.open || clock.Age(r.closed, now) <= snapshot.Skew
	return v, found, r.known != nil && heard && follows
}

// each calls do with all that is known.
func (r *reflector[V]) each(do func(name string, v V)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for name, v := range r.known {
		do(name, v)
	}
}

// isRefused reports whether the resource may not be followed, or is not there.
func (r *reflector[V]) isRefused() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.refused
}

// isRefused reports whether the upstream answered that this is not ours to read,
// or not there to be read: trying again soon will not change it.
func isRefused(err error) bool {
	return source.Answered(err, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed)
}

// isWarning reports whether the log has to warn of an error, where there were errors since then. What passes within
// a minute is a normal restart. What says how the upstream or the way to it is, and nothing of what was asked for,
// is told once for all ([upstream.Health]).
func isWarning(err error, since time.Time) bool {
	return time.Since(since) >= followHealthy && !source.IsUpstreamFailure(err)
}
