package faults

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
)

// The smallest memory limit that the chart accepts in round units, and what it makes of it
// (checkMemory of test/chart).
const (
	memoryLimit   = 1 << 30
	memorySoft    = "921MiB"
	memoryStored  = "242Mi"
	memoryWritten = "128Mi"
)

const (
	// So many objects of that size are 60 MiB, in JSON and in protobuf each, and each of two rounds
	// of changes adds as much to both: more than may be stored.
	largeObjects = 240
	largeSize    = 256 << 10
	// fewLarge of them are in the second namespace, whose lists are small enough to be compared
	// again and again.
	fewLarge = 4
	// atATime readers read whole lists, as fast as they can, so often each.
	atATime  = 4
	readings = 2
)

// revisions are the kind of large objects. kube-apiserver does not look into them.
var revisions = kind{APIVersion: "apps/v1", Name: "ControllerRevision", Plural: "controllerrevisions"}

// memoryCases are about a listproxy that may not have more memory than the chart's smallest pod,
// and ends if it takes more.
//
// The bound is that of the kernel on what a process has of memory that it can write (RLIMIT_DATA:
// private, writable mappings since Linux 4.7, used or not), which takes no privileges. Beyond it Go
// ends with "out of memory". Resident memory, in which the program's own text is counted as well,
// is looked at in the end.
func memoryCases() []faultCase {
	return []faultCase{{
		name: "memory_bounded", plain: true,
		shell: fmt.Sprintf("ulimit -d %d\nexport GOMEMLIMIT=%s", memoryLimit>>10, memorySoft),
		args: []string{
			"--cache-bytes", memoryStored, "--max-inflight-bytes", memoryWritten,
		},
		before: (*scene).createLarge,
		fault:  (*scene).largeLists,
	}}
}

// createLarge creates large objects.
func (s *scene) createLarge() {
	s.Helper()
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, ns := range s.namespaces {
			if _, err := s.direct.Do(ctx, http.MethodDelete, revisions.Path(ns), nil); err != nil {
				s.Log(err)
			}
		}
	})
	s.eachLarge(func(ns, name string) error {
		random := make([]byte, largeSize/2) // of which little can be compressed
		_, _ = rand.Read(random)
		return s.writeLarge(http.MethodPost, revisions.Path(ns),
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"revision":1,"data":{"text":"%x"}}`,
				revisions.APIVersion, revisions.Name, name, random))
	})
}

// eachLarge does something with each large object.
func (s *scene) eachLarge(do func(ns, name string) error) {
	s.Helper()
	var group errgroup.Group
	group.SetLimit(4)
	for i := range largeObjects {
		ns := s.namespaces[0]
		if i < fewLarge {
			ns = s.namespaces[1]
		}
		name := fmt.Sprintf("large-%03d", i)
		group.Go(func() error {
			return poll.Retry(s.Context(), "writing "+name, func() error { return do(ns, name) })
		})
	}
	s.must(group.Wait())
}

// rewrite changes every large object, and so adds as much as they are to the history of each form.
func (s *scene) rewrite() {
	s.Helper()
	s.eachLarge(func(ns, name string) error {
		return s.writeLarge(http.MethodPatch, revisions.Path(ns)+"/"+name,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, mathrand.Int()))
	})
}

// largeLists lets many ask for whole large lists, at first fast, then slowly or not at all, while
// all of it is rewritten.
func (s *scene) largeLists() time.Time {
	s.Helper()
	p := s.proxies.All()[0]
	s.must(boundedBy(p.PID(), memoryLimit))
	forms := []load.Form{load.AsJSON, load.AsProtobuf}
	// Both forms need not fit: what does not is forwarded.
	known := func(when string) {
		s.must(poll.Retry(s.Context(), "large objects from memory "+when, func() error {
			var found bool
			var errs []error
			for _, f := range forms {
				q := question{Collection: collection{Kind: revisions, Form: f}, Namespace: s.namespaces[1], Query: ask.AnyVersion}
				_, err := s.fromMemory(s.Context(), q)
				found, errs = found || err == nil, append(errs, err)
				s.put(s.Context(), q, true, 0)
			}
			if found {
				return nil
			}
			return errors.Join(errs...)
		}))
	}
	known("at the beginning")
	s.mark("large objects are loaded")
	var reading errgroup.Group
	var read, hits, compared atomic.Int64
	for i := range atATime {
		reading.Go(func() error {
			f, compressed := forms[i%len(forms)], i >= len(forms)
			for range readings {
				l, err := s.whole(s.via, ask.AnyVersion, f, compressed)
				if err != nil {
					return err
				}
				read.Add(l.size)
				if !l.fromMemory {
					continue
				}
				hits.Add(1)
				if f == load.AsJSON && !compressed {
					compared.Add(1)
					if err := s.same(l); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	s.rewrite()
	s.mark("large objects are rewritten")
	s.must(reading.Wait())
	s.mark("large lists are read")
	token := s.plane.RESTConfig(controlplane.Feed).BearerToken // another caller, with a share of its own
	s.besideSlow(revisions.Path(""), token, func() {
		s.rewrite()
		s.mark("large objects are rewritten again")
		known("beside slow and stuck clients")
		s.calm("beside slow and stuck clients")
	})
	known("at the end")
	if compared.Load() == 0 {
		s.Error("no large list came from memory")
	}
	_, peak, err := process.Memory(p.PID())
	s.must(err)
	harness.Log(fmt.Sprintf("faults: %s: %d whole lists, %d from memory, %d compared, %d MiB; at most %d MiB resident, of %d", s.namespaces[0],
		atATime*readings, hits.Load(), compared.Load(), read.Load()>>20, peak>>20, memoryLimit>>20))
	if peak > memoryLimit {
		s.Errorf("it had %d MiB resident", peak>>20)
	}
	return time.Now()
}

// writeLarge writes a large object, of whose answer nothing but metadata is wanted: to read more
// takes most of the time.
func (s *scene) writeLarge(method, path string, body []byte) error {
	direct := s.direct.With("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	a, err := s.Write(s.Context(), direct, revisions, method, path, json.RawMessage(body))
	if a.Code == http.StatusConflict { // it was created before, and the answer came too late
		return nil
	}
	return err
}

// largeList is a list of all large objects, of which only this is kept.
type largeList struct {
	fromMemory bool
	size       int64             // on the wire
	sum        [sha256.Size]byte // of what was on the wire
	begin      [1 << 10]byte     // of the same
}

// whole reads a list of all large objects.
func (s *scene) whole(from *ask.Client, query string, f load.Form, compressed bool) (l largeList, err error) {
	err = poll.Retry(s.Context(), "a large list", func() error {
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		reader := from.With("Accept", f.Accept).With("Accept-Encoding", map[bool]string{false: "identity", true: "gzip"}[compressed])
		resp, err := reader.Open(ctx, http.MethodGet, revisions.Path("")+"?"+query, nil)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		l.fromMemory = ask.Answer{Header: resp.Header}.FromMemory()
		sum := sha256.New()
		n, err := io.ReadFull(resp.Body, l.begin[:])
		if err != nil {
			return err
		}
		_, _ = sum.Write(l.begin[:])
		if l.size, err = io.Copy(sum, resp.Body); err != nil {
			return err
		}
		l.size += int64(n)
		copy(l.sum[:], sum.Sum(nil))
		return nil
	})
	return l, err
}

// revisionOf finds the revision at the beginning of a list in JSON.
var revisionOf = regexp.MustCompile(`"metadata":\{"resourceVersion":"(\d+)"`)

// same holds a whole list in JSON from memory against what kube-apiserver says for its revision.
func (s *scene) same(l largeList) error {
	found := revisionOf.FindSubmatch(l.begin[:])
	if found == nil {
		return fmt.Errorf("no list: %.200q", l.begin)
	}
	revision, err := strconv.ParseUint(string(found[1]), 10, 64)
	if err != nil {
		return err
	}
	direct, err := s.whole(s.direct, ask.Exactly(revision), load.AsJSON, false)
	if err == nil && (direct.sum != l.sum || direct.size != l.size) {
		s.Tally.Wrong("a large list of revision %d, from memory: %d bytes, directly %d, and not the same", revision, l.size, direct.size)
	}
	return err
}

// boundedBy is an error unless the kernel bounds a process' writable memory so.
func boundedBy(pid int, limit int64) error {
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err == nil && !regexp.MustCompile(fmt.Sprintf(`(?m)^Max data size +%d `, limit)).Match(limits) {
		err = fmt.Errorf("the memory of listproxy is not bounded by %d:\n%s", limit, limits)
	}
	return err
}
