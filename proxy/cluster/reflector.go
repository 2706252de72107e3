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
	// (k8s.io/apiserver/pkg/storage/cacher, cacheWatcher.process), so a silent watch need not be dead. The known
	// objects count until that list fails or has taken pageTimeout: the API server may only be slow.
	streamSilence = 80 * time.Second
	// minWatchTime is the shortest timeout of a watch. The longest is twice as long, as in client-go's reflectors.
	minWatchTime = 5 * time.Minute
	// followHealthy is the time after which a stream that breaks counts as healthy, and is opened again soon, and after
	// which failures are warned of.
	followHealthy = time.Minute
	// refusedRetry is the longest pause after a stream was refused.
	refusedRetry = 5 * time.Minute
)

// reflector keeps a value of each object of one resource, and reports changes. It lists the objects, and then follows
// watches, one after the other, as long as each ends at its timeout. After any other end it lists again, and reports
// what has changed meanwhile: etcd may have been restored.
//
// It is not client-go's reflector, which does not say whether its watch is open, and waits for up to a minute before
// it opens a watch again (https://github.com/kubernetes/kubernetes/issues/136943).
type reflector[V any] struct {
	// resource is its name in the log.
	resource string
	from     *api
	// path is the path of its objects, and labels a selector.
	path, labels string
	// read returns the value that is kept of an object.
	read func(*object) V
	// changed is called for each change, and for all objects in the first list.
	changed func(change[V])
	// refusal is logged once if the resource may not be followed, or is not there, unless it is empty. It says what
	// follows from that. grant is the right that would help.
	refusal, grant string
	// asOf is [Config.AsOf].
	asOf func(time.Time) time.Time
	log  *slog.Logger

	mu sync.RWMutex
	// known has the values by name (namespace/name). It is nil until there was a list. Only the goroutine of run
	// changes it.
	known map[string]V
	// refused reports whether the resource may not be listed or watched, or is not there.
	refused bool
	// open reports whether there was a watch, and nothing has failed since. heard is the time of the upstream's last
	// answer or event, and closed that of the last failure.
	open          bool
	heard, closed time.Time
}

// change is the change of an object.
type change[V any] struct {
	name string
	// before is nil if the object is new, and after if it was deleted.
	before, after *V
	// first reports whether the object was in the first list.
	first bool
}

// run follows the resource until ctx ends.
func (r *reflector[V]) run(ctx context.Context) {
	var retry, refusals wait.Backoff
	var failing time.Time // the time since which it could not be followed for long
	warned := false       // whether the log has a warning of that
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
			failing = time.Now()
			warned = false
		}
		if !errors.Is(err, errSilent) {
			r.setOpen(false)
		}
		refused := isRefused(err)
		backoff := &retry
		if refused {
			backoff = &refusals
			r.mu.Lock()
			r.refused = true
			r.mu.Unlock()
		}
		delay := backoff.Step()
		neverPermitted := refused && r.known == nil
		warns := !warned && (isWarning(err, failing) || neverPermitted)
		switch {
		case warns && refused && r.refusal != "":
			r.log.WarnContext(ctx, r.refusal, "grant", r.grant, "error", err)
			warned = true
		case warns && !refused:
			r.log.WarnContext(ctx, "what the API server serves cannot be followed for a minute", "stream", r.resource, "error", err)
			warned = true
		default:
			r.log.DebugContext(ctx, "a stream ended and will be opened again", "stream", r.resource, "in", delay, "error", err)
		}
		if !clock.Sleep(ctx, delay) {
			return
		}
	}
}

// follow lists the resource, and watches it until a watch fails.
func (r *reflector[V]) follow(ctx context.Context) error {
	revision, err := r.list(ctx)
	for err == nil {
		revision, err = r.watch(ctx, revision)
	}
	return err
}

// list replaces the known objects by those of the newest state, and returns its revision.
func (r *reflector[V]) list(ctx context.Context) (revision string, err error) {
	listed := map[string]V{}
	var changes []change[V]
	revision, err = r.from.list(ctx, r.path, r.labels, func(o *object) {
		c := r.compare(o)
		listed[c.name] = *c.after
		changes = append(changes, c)
	})
	if err != nil {
		return "", err
	}
	for name, value := range r.known {
		if _, ok := listed[name]; !ok {
			changes = append(changes, change[V]{name: name, before: &value})
		}
	}
	first := r.known == nil
	r.mu.Lock()
	r.known = listed
	r.heard = time.Now()
	r.mu.Unlock()
	for _, c := range changes {
		c.first = first
		r.report(c)
	}
	return revision, nil
}

var (
	errSilent = errors.New("the watch was silent for too long")
	errEarly  = errors.New("the watch ended before its time")
)

// watch follows the changes after a revision until the watch ends at its timeout, and returns the last revision.
func (r *reflector[V]) watch(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	seconds := int64((minWatchTime + rand.N(minWatchTime)) / time.Second) // #nosec G404 -- no secret
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
	// The upstream has another clock, so a second less is not early.
	if time.Since(asked) < time.Duration(seconds-1)*time.Second || ctx.Err() != nil {
		return "", errors.Join(context.Cause(ctx), errEarly)
	}
	return revision, nil
}

// take applies an event, and returns its revision.
func (r *reflector[V]) take(kind watch.EventType, o *object) (revision string) {
	if kind == watch.Bookmark {
		return o.Metadata.ResourceVersion
	}
	c := r.compare(o)
	r.mu.Lock()
	if kind == watch.Deleted {
		c.after = nil
		delete(r.known, c.name)
	} else {
		r.known[c.name] = *c.after
	}
	r.mu.Unlock()
	r.report(c)
	return o.Metadata.ResourceVersion
}

// compare returns the change from the known value of an object to its new one.
func (r *reflector[V]) compare(o *object) change[V] {
	value := r.read(o)
	c := change[V]{name: strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"), after: &value}
	if known, ok := r.known[c.name]; ok {
		c.before = &known
	}
	return c
}

// report calls changed if the values differ.
func (r *reflector[V]) report(c change[V]) {
	if !reflect.DeepEqual(c.before, c.after) {
		r.changed(c)
	}
}

// setOpen notes that an answer or event of a watch has come, or that a watch or a list has failed.
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

// get returns the known value of an object. current reports whether a change that is older than [snapshot.Skew] would
// be known, unless the API server itself is late.
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

// each calls do with all known values.
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

// isRefused reports whether the upstream has answered that listproxy may not read a resource, or that there is none, so
// that another attempt should wait.
func isRefused(err error) bool {
	return source.Answered(err, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed)
}

// isWarning reports whether the log must warn of an error. A failure that passes within a minute is a normal restart,
// and [upstream.Health] warns of one of the upstream itself.
func isWarning(err error, failing time.Time) bool {
	return time.Since(failing) >= followHealthy && !source.IsUpstreamFailure(err)
}
