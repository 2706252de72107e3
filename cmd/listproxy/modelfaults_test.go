package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/inmemory"
)

// runFault lets a random fault happen, and then some time pass. Some faults are in the list twice: they are more
// frequent.
func (m *model) runFault() {
	noFault := func() {}
	fault := oneOf(
		m.restartServer, m.restartServer, m.freezeServer, m.hangServer, m.refuseRequests, m.changeDefinition, m.restoreEtcd,
		m.revokeOrGrant, m.revokeOrGrant, m.replaceServers, m.writeBurst, noFault,
	)
	m.setQuietSince(time.Time{})
	fault()
	m.setQuietSince(time.Now())
	pause(4 * time.Minute)
}

// setQuietSince records the time at which a fault has ended, or the zero time when a fault begins.
func (m *model) setQuietSince(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quietSince = at
}

// isQuiet reports whether the last fault has ended at least modelNoticeLag before now.
func (m *model) isQuiet(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.quietSince.IsZero() && now.Sub(m.quietSince) >= modelNoticeLag
}

func (m *model) randomServer() *inmemory.Server { return oneOf(m.plane.Servers()...) }

// nextRelease returns a release that no server has had.
func (m *model) nextRelease() string {
	m.releases++
	return fmt.Sprintf("v1.36.%d", m.releases)
}

func (m *model) restartServer() {
	release := firstRelease
	if oneIn(2) {
		release = m.nextRelease()
	}
	m.logf("a server restarts as %s", release)
	s := m.randomServer()
	s.Stop()
	pause(20 * time.Second)
	s.Start(release)
}

func (m *model) freezeServer() {
	m.logf("the watch cache of a server freezes")
	s := m.randomServer()
	s.Freeze()
	pause(3 * time.Minute)
	s.Heal()
}

func (m *model) hangServer() {
	m.logf("a server hangs")
	s := m.randomServer()
	s.Hang()
	pause(time.Minute)
	s.Heal()
}

func (m *model) refuseRequests() {
	status := oneOf(http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError)
	m.logf("a server answers %d", status)
	s := m.randomServer()
	s.Refuse(status)
	pause(time.Minute)
	s.Heal()
}

func (m *model) changeDefinition() {
	m.logf("the definition changes")
	m.plane.Define()
}

// revokeOrGrant changes carol's right. A right that was revoked is granted again soon, so that carol mostly has it.
func (m *model) revokeOrGrant() {
	allowed := !m.plane.Allowed("carol")
	m.logf("carol is allowed: %t", allowed)
	m.plane.Allow("carol", allowed)
	if !allowed {
		pause(30 * time.Second)
		m.plane.Allow("carol", true)
	}
}

// replaceServers restarts all servers as a new release, one after the other.
func (m *model) replaceServers() {
	m.logf("all servers are replaced")
	release := m.nextRelease()
	for _, s := range m.plane.Servers() {
		s.Stop()
		pause(5 * time.Second)
		s.Start(release)
		pause(time.Minute)
	}
}

// writeBurst writes often, with a consistent list after each write.
func (m *model) writeBurst() {
	m.logf("many writes, each with a consistent list")
	var lists sync.WaitGroup
	for range 50 {
		m.writeWidget()
		lists.Go(func() { m.list(m.t.Context(), listRequest{user: "alice", semantics: "Consistent"}, firstPage) })
		pause(500 * time.Millisecond)
	}
	lists.Wait()
}

// restoreEtcd stops all servers, restores etcd to an older revision, and starts the servers. Writes after some of the starts
// may take etcd past its old revision while other servers are still down.
func (m *model) restoreEtcd() {
	servers := m.plane.Servers()
	for _, s := range servers {
		s.Stop()
	}
	const minRevision = 102 // at which etcd has the definition of widgets
	head := m.plane.Revision()
	restored := max(head-int64(rand.IntN(30)), minRevision)
	m.beginRestore()
	m.plane.Restore(restored)
	time.Sleep(modelMinRestore)
	pause(20 * time.Second)
	for _, s := range servers {
		s.Start(firstRelease)
		if oneIn(2) {
			for range rand.IntN(60) {
				m.writeWidget()
			}
		}
	}
	m.endRestore()
	m.logf("etcd was restored from revision %d to %d, and is at %d", head, restored, m.plane.Revision())
}

// beginRestore records that no server of the restored etcd can be reached until endRestore.
func (m *model) beginRestore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restoredAt = time.Time{}
}

// endRestore records that the servers of the restored etcd can be reached.
func (m *model) endRestore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restoredAt = time.Now()
}

// countOnTheWay adds to the number of answers on their way to listproxy. timeline is the one in which they were requested.
func (m *model) countOnTheWay(timeline, added int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onTheWay[timeline] += added
}

// isOldAnswerOnTheWay reports whether an answer of an earlier timeline is still on its way to listproxy, so that listproxy
// cannot know yet that the timeline has ended.
func (m *model) isOldAnswerOnTheWay() bool {
	current := m.currentTimeline()
	m.mu.Lock()
	defer m.mu.Unlock()
	for timeline, n := range m.onTheWay {
		if timeline < current && n > 0 {
			return true
		}
	}
	return false
}

// unreliableTransport delays listproxy's own requests for widgets, their answers, and each line of an answer. Until isHealthy
// is set, it also loses some answers, and breaks off others.
type unreliableTransport struct {
	http.RoundTripper
	model     *model
	isHealthy *atomic.Bool // set when all faults are over
}

// A fault of an unreliableTransport happens once in so many times, on average.
const (
	slowOdds  = 30 // a delay is long
	lossOdds  = 40 // an answer is lost
	breakOdds = 40 // an answer is broken off after a line
)

// fails reports whether a fault with these odds happens. None does when the transport is healthy.
func (u unreliableTransport) fails(odds int) bool { return !u.isHealthy.Load() && oneIn(odds) }

// delay sleeps for a random latency. It returns false if ctx ends before.
func (u unreliableTransport) delay(ctx context.Context) bool {
	latency := rand.N(40 * time.Millisecond)
	if u.fails(slowOdds) {
		latency = rand.N(3 * time.Second)
	}
	return clock.Sleep(ctx, latency)
}

// RoundTrip implements http.RoundTripper.
func (u unreliableTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token := r.Header.Get("Authorization")
	isOfCaller := token == "Bearer alice" || token == "Bearer carol"
	if isOfCaller || !strings.HasSuffix(r.URL.Path, "/widgets") {
		return u.RoundTripper.RoundTrip(r)
	}
	ctx := r.Context()
	if !u.delay(ctx) {
		return nil, ctx.Err()
	}
	timeline := u.model.currentTimeline()
	resp, err := u.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	u.model.countOnTheWay(timeline, 1)
	if !u.delay(ctx) || u.fails(lossOdds) { // the answer is lost on its way
		u.model.countOnTheWay(timeline, -1)
		_ = resp.Body.Close()
		return nil, errors.Join(ctx.Err(), io.ErrUnexpectedEOF)
	}
	reader, writer := io.Pipe()
	original := resp.Body
	go func() {
		defer u.model.countOnTheWay(timeline, -1)
		u.copyLines(ctx, writer, original)
	}()
	resp.Body = reader
	return resp, nil
}

// copyLines copies a body, line by line and with delays, until the body ends or a fault breaks it off. Then it closes both
// ends.
func (u unreliableTransport) copyLines(ctx context.Context, to *io.PipeWriter, from io.ReadCloser) {
	defer func() { _ = from.Close() }()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			u.delay(ctx)                    // if ctx has ended, from ends, too
			_, _ = io.WriteString(to, line) // fails if the reader is gone; then from ends, too
		}
		if err == nil && u.fails(breakOdds) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			_ = to.CloseWithError(err)
			return
		}
	}
}
