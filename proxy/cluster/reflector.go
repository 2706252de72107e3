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
	// maxSilence is the time for which a watch may be silent before the resource is listed again. kube-apiserver sends a
	// bookmark about every minute, but none while its cache is still at the revision at which the watch began
	// (k8s.io/apiserver/pkg/storage/cacher, cacheWatcher.process). So a silent watch may be healthy. Therefore the known
	// objects stay in use while the list is read (see maxKnownAge).
	maxSilence = 80 * time.Second
	// maxKnownAge is the time after which the known objects are no longer current if the API server sends nothing: 140 s. That
	// is maxSilence, and another 60 s (pageTimeout) for the list that follows the silence.
	maxKnownAge = maxSilence + pageTimeout
	// minWatchTime is the shortest timeout of a watch. The longest is twice as long, as in client-go's reflectors.
	minWatchTime = 5 * time.Minute
	// healthyTime is the time after which a stream counts as healthy, even if it fails later.
	healthyTime = time.Minute
	// warnAfter is the time for which failures must last before the log warns of them: a minute.
	warnAfter = healthyTime
	// maxRefusedPause is the longest pause after a stream that was refused, without the pause's jitter.
	maxRefusedPause = 5 * time.Minute
)

// reflector keeps a value of each object of one resource, and reports changes. The value is what read returns of the object. A
// reflector follows one stream after another:
//
//	stream    a list, and the watches after it; when a watch ends at its timeout, the next begins at the last revision
//	failure   any other end of a watch, or a list that fails; it ends the stream
//	refusal   a failure because listproxy may not read the resource, or because the resource does not exist
//	silence   a failure because a watch has sent nothing for maxSilence
//
// After a failure the next stream begins with a list, which shows what has changed. A watch from the last revision could miss
// changes, since etcd may have been restored from a backup meanwhile.
//
// client-go's reflector does not say whether its watch is open, and waits for up to a minute before it opens a watch
// again (https://github.com/kubernetes/kubernetes/issues/136943).
type reflector[V any] struct {
	// resource is the resource's name in the log.
	resource string
	from     *api
	// path is the path of the resource's lists and watches.
	path string
	// labels is the label selector of the lists and watches. It may be empty.
	labels string
	// read returns the value that is kept of an object.
	read func(*object) V
	// onChange is called for each changed value. After the first list, it is called for every object in the list.
	onChange func(valueChange[V])
	// refusedWarning is the warning after a refusal, and names the consequences. If it is empty, there is no warning.
	refusedWarning string
	// needs names the right that listproxy lacks if the API server refuses the resource.
	needs string
	// asOf is [Config.AsOf], which returns the time at which ages are measured. It may be nil.
	asOf func(now time.Time) time.Time
	log  *slog.Logger

	// mu guards the fields below. They change as follows (- means that they stay):
	//
	//	                      known      unreadable   followed   heardAt   lostAt
	//	a list was read       replaced   -            -          now       -
	//	a watch was opened    -          false        true       now       -
	//	an event came         updated    false        true       now       -
	//	a bookmark came       -          false        true       now       -
	//	silence               -          -            -          -         -
	//	a refusal             -          true         false      -         now if followed was true
	//	any other failure     -          -            false      -         now if followed was true
	mu sync.RWMutex
	// known has the values by the name of their object (namespace/name). It is nil before the first list. Only run's
	// goroutine writes known, with mu locked, and may therefore read it without mu.
	known      map[string]V
	unreadable bool      // there was a refusal, and no watch was opened after it
	followed   bool      // a watch was opened, and there was no failure after it except silence
	heardAt    time.Time // when the last list was read, or a watch was last opened or last sent something
	lostAt     time.Time // when followed last became false
}

// valueChange is the change of an object's value.
type valueChange[V any] struct {
	name string // namespace/name, or only the name if there is no namespace
	// before is nil if the object is new.
	before *V
	// after is nil if the object was deleted.
	after *V
	// first means that the object was in the first list.
	first bool
}

// run follows one stream after another until ctx ends.
func (r *reflector[V]) run(ctx context.Context) {
	recent := newFailures()
	for {
		began := time.Now()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= healthyTime {
			recent = newFailures()
		}
		r.recordFailure(err)
		pause := recent.nextPause(err)
		r.logFailure(ctx, err, pause, recent)
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

// failures describes the failures since the last healthy stream.
type failures struct {
	since        time.Time    // the end of the last healthy stream, or the beginning of run
	hasWarned    bool         // a warning of these failures was logged
	refusedRetry wait.Backoff // the pauses after refusals
	otherRetry   wait.Backoff // the pauses after all other failures
}

// newFailures returns the failures at the end of a healthy stream, or at the beginning of run: none yet.
func newFailures() *failures {
	return &failures{
		since: time.Now(),
		// 1 s, 2 s, 4 s, up to five minutes. The first pauses are short, since an API server that has just started refuses
		// everybody until it has read its roles.
		refusedRetry: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxRefusedPause},
		// 0.5 s, 1 s, then always 2 s.
		otherRetry: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: 2 * time.Second},
	}
}

// nextPause returns the pause after the failure err, and makes the pause after the next failure longer.
func (f *failures) nextPause(err error) time.Duration {
	if isRefusal(err) {
		return f.refusedRetry.Step()
	}
	return f.otherRetry.Step()
}

// logFailure logs that err has ended a stream. It warns at most once between two healthy streams. If a resource was never read,
// it warns of a refusal at once. Otherwise it warns only if failures have lasted for a minute (see mustWarn).
func (r *reflector[V]) logFailure(ctx context.Context, err error, pause time.Duration, recent *failures) {
	refused := isRefusal(err)
	neverPermitted := refused && r.known == nil
	isWarningDue := !recent.hasWarned && (mustWarn(err, recent.since) || neverPermitted)
	switch {
	case isWarningDue && refused && r.refusedWarning != "":
		r.log.WarnContext(ctx, r.refusedWarning, "grant", r.needs, "error", err)
		recent.hasWarned = true
	case isWarningDue && !refused:
		r.log.WarnContext(ctx, "a resource could not be followed for a minute", "resource", r.resource, "error", err)
		recent.hasWarned = true
	default:
		r.log.DebugContext(ctx, "a stream ended and will be opened again", "resource", r.resource, "in", pause, "error", err)
	}
}

// follow follows one stream, and returns the failure that ended it.
func (r *reflector[V]) follow(ctx context.Context) error {
	revision, err := r.list(ctx)
	for err == nil {
		revision, err = r.watch(ctx, revision)
	}
	return err
}

// list reads the newest state of the resource, replaces the known values, and reports the differences. It returns the revision
// of this state.
func (r *reflector[V]) list(ctx context.Context) (revision string, err error) {
	listed := map[string]V{}
	var changes []valueChange[V]
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
			changes = append(changes, valueChange[V]{name: name, before: &value})
		}
	}
	first := r.known == nil
	r.mu.Lock()
	r.known = listed
	r.heardAt = time.Now()
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

// watch opens a watch from a revision, and applies its events until it ends at its timeout. It returns the last revision. Any
// other end of the watch is an error.
func (r *reflector[V]) watch(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	timeout := (minWatchTime + rand.N(minWatchTime)).Truncate(time.Second) // #nosec G404 -- no secret
	sent := time.Now()
	resp, err := r.from.get(ctx, r.path, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "labelSelector": {r.labels},
		"resourceVersion": {revision}, "timeoutSeconds": {strconv.FormatInt(int64(timeout/time.Second), 10)},
	})
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.recordSuccess()
	events := json.NewDecoder(resp.Body)
	for {
		eventType, o, err := readEvent(events)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", errors.Join(context.Cause(ctx), err)
		}
		silence.Reset(maxSilence)
		revision = r.apply(eventType, o)
		r.recordSuccess()
	}
	const tolerance = time.Second // the API server measures the timeout by its own clock
	if time.Since(sent) < timeout-tolerance || ctx.Err() != nil {
		return "", errors.Join(context.Cause(ctx), errEarly)
	}
	return revision, nil
}

// apply applies an event to the known values, reports the change, and returns the event's revision.
func (r *reflector[V]) apply(eventType watch.EventType, o *object) (revision string) {
	if eventType == watch.Bookmark {
		return o.Metadata.ResourceVersion
	}
	c := r.compare(o)
	r.mu.Lock()
	if eventType == watch.Deleted {
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
func (r *reflector[V]) compare(o *object) valueChange[V] {
	value := r.read(o)
	c := valueChange[V]{name: strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/"), after: &value}
	if known, ok := r.known[c.name]; ok {
		c.before = &known
	}
	return c
}

// report calls onChange if the value has changed.
func (r *reflector[V]) report(c valueChange[V]) {
	if !reflect.DeepEqual(c.before, c.after) {
		r.onChange(c)
	}
}

// recordSuccess records that a watch was opened, or has sent an event.
func (r *reflector[V]) recordSuccess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heardAt = time.Now()
	r.unreadable = false
	r.followed = true
}

// recordFailure records that err has ended a stream.
func (r *reflector[V]) recordFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreadable = r.unreadable || isRefusal(err)
	if errors.Is(err, errSilent) {
		return // the resource still counts as followed, since the watch may be healthy (see maxSilence)
	}
	if r.followed {
		r.lostAt = time.Now()
	}
	r.followed = false
}

// ready reports whether a list was read, or the API server refuses the resource.
func (r *reflector[V]) ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known != nil || r.unreadable
}

// knowledge is what a reflector knows about one object.
type knowledge[V any] struct {
	value  V    // the object's value, or zero if exists is false
	exists bool // the object was in the last list, or came in an event, and was not deleted since
	// isCurrent means that the reflector knows all changes of the resource, perhaps without those of the last [snapshot.Skew]
	// (ten seconds) or, if its stream is dead and this was not noticed yet, of maxKnownAge. Otherwise the object may meanwhile
	// have been changed, created or deleted.
	isCurrent bool
}

// get returns what is known about an object. isCurrent is true if all of these hold:
//
//   - a list was read
//   - the resource is followed, or was followed at most snapshot.Skew ago
//   - in the last 140 s (maxKnownAge) a list was read, a watch was opened, or a watch has sent something
func (r *reflector[V]) get(name string) knowledge[V] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	value, exists := r.known[name]
	now := time.Now()
	if r.asOf != nil {
		now = r.asOf(now)
	}
	// clock.Age includes the time for which the machine was suspended, since its connections may be dead.
	isRecent := clock.Age(r.heardAt, now) <= maxKnownAge
	recentlyFollowed := r.followed || clock.Age(r.lostAt, now) <= snapshot.Skew
	return knowledge[V]{value: value, exists: exists, isCurrent: r.known != nil && isRecent && recentlyFollowed}
}

// each calls do with all known values. do must not call the reflector.
func (r *reflector[V]) each(do func(name string, v V)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for name, v := range r.known {
		do(name, v)
	}
}

// isUnreadable reports whether the API server has refused the resource, and no watch was opened after that.
func (r *reflector[V]) isUnreadable() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.unreadable
}

// isRefusal reports whether err is the answer that listproxy may not read the resource, or that the resource does not exist.
func isRefusal(err error) bool {
	return source.Answered(err, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed)
}

// mustWarn reports whether the log must warn of err, after failures since failingSince. Failures for less than a minute
// (warnAfter) are normal when an API server restarts. If the upstream itself fails, [upstream.Health] warns instead.
func mustWarn(err error, failingSince time.Time) bool {
	return time.Since(failingSince) >= warnAfter && !source.IsUpstreamFailure(err)
}
