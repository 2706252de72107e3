package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// streamSilence is how long a watch may be silent before the resource is listed again. kube-apiserver
	// sends a bookmark about every minute, but none while its cache is where the watch began
	// (k8s.io/apiserver/pkg/storage/cacher, cacheWatcher.process): a silent watch need not be a dead one. What
	// is known counts until that list fails or has had listTimeout: an API server that is slow is not another.
	streamSilence = 80 * time.Second
	// watchLeast is how long a watch is asked for, at least; at most it is twice as long. client-go's
	// reflectors do the same.
	watchLeast  = 5 * time.Minute
	listTimeout = time.Minute
	// A stream that has lasted for followHealthy has not failed: the next attempt is made soon.
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
	source   *cache.ListWatch
	// read reads what is kept of an object.
	read func(runtime.Object) (V, error)
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
	// refused: it may not be listed, or not be watched, or it is not there.
	refused bool
	// open: there is or was a watch, and nothing has failed since. heard is when the upstream last said something,
	// closed when something failed.
	open          bool
	heard, closed time.Time
}

// change is what has changed about an object.
type change[V any] struct {
	name string
	// was is nil if the object came, is if it went.
	was, is *V
	// first: it was there when the resource was listed for the first time.
	first bool
}

// run follows the resource until ctx ends.
func (r *reflector[V]) run(ctx context.Context) {
	var retry, refusals wait.Backoff
	said := r.refusal == ""
	for healthy := true; ; {
		if healthy {
			// An API server that has just started refuses everybody until it has read its roles; one that goes on
			// refusing is to be left alone.
			retry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: 2 * time.Second}
			refusals = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: refusedRetry}
		}
		began := time.Now()
		err := r.follow(ctx)
		healthy = time.Since(began) >= followHealthy
		if ctx.Err() != nil {
			return
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
		switch {
		case refused && !said:
			r.log.WarnContext(ctx, r.refusal, "grant", r.grant, "error", err)
			said = true
		case !refused:
			r.log.Log(ctx, levelOf(err), "a stream ended and will be opened again", "stream", r.resource, "in", delay, "error", err)
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
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, _, err := pager.New(r.source.ListWithContext).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	of, err := meta.ListAccessor(all)
	if err != nil {
		return "", err
	}
	listed := map[string]V{}
	var changes []change[V]
	if err := meta.EachListItem(all, func(o runtime.Object) error {
		c, err := r.compare(o)
		if err == nil {
			listed[c.name] = *c.is
			changes = append(changes, c)
		}
		return err
	}); err != nil {
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
	return of.GetResourceVersion(), nil
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
	w, err := r.source.WatchWithContext(ctx, metav1.ListOptions{
		ResourceVersion: revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	defer w.Stop()
	r.setOpen(true)
	for event := range w.ResultChan() {
		silence.Reset(streamSilence)
		if revision, err = r.take(event); err != nil {
			return "", errors.Join(context.Cause(ctx), err)
		}
		r.setOpen(true)
	}
	// What the upstream counts by is another clock.
	if early := time.Since(asked) < time.Duration(seconds-1)*time.Second; early || ctx.Err() != nil {
		return "", errors.Join(context.Cause(ctx), errEarly)
	}
	return revision, nil
}

// take takes in an event, and returns its revision.
func (r *reflector[V]) take(event watch.Event) (revision string, err error) {
	if event.Type == watch.Error {
		return "", apierrors.FromObject(event.Object)
	}
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return "", err
	}
	if event.Type == watch.Bookmark {
		return m.GetResourceVersion(), nil
	}
	c, err := r.compare(event.Object)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	if event.Type == watch.Deleted {
		c.is = nil
		delete(r.known, c.name)
	} else {
		r.known[c.name] = *c.is
	}
	r.mu.Unlock()
	r.tell(c)
	return m.GetResourceVersion(), nil
}

// compare reads an object, and says what was known of it before.
func (r *reflector[V]) compare(o runtime.Object) (c change[V], err error) {
	is, err := r.read(o)
	if err != nil {
		return c, err
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return c, err
	}
	c.name, c.is = cache.MetaObjectToName(m).String(), &is
	if was, found := r.known[c.name]; found { // which only this goroutine changes
		c.was = &was
	}
	return c, nil
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

// ready says whether there was a list, or the resource may not be followed.
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
	heard := clock.Age(r.heard, now) <= streamSilence+listTimeout
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

// isRefused says whether the resource may not be followed, or is not there.
func (r *reflector[V]) isRefused() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.refused
}

// isRefused says whether the upstream answered that this is not ours to read,
// or not there to be read: trying again soon will not change it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// listWatchOf lists and watches the objects of a client.
func listWatchOf[L runtime.Object](objects interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
},
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: objects.Watch,
	}
}

// levelOf is the level for an error after which the upstream is asked again. What says how the
// upstream or the way to it is, and nothing of what was asked for, is told once for all
// ([upstream.Health]).
func levelOf(err error) slog.Level {
	if wire.IsCut(err) || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}
