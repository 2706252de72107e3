package faults

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"runtime"
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
	if runtime.GOOS != "linux" {
		return nil // what it needs only Linux tells and does
	}
	return []faultCase{{
		name: "memory_bounded", plain: true,
		shell: fmt.Sprintf("ulimit -d %d\nexport GOMEMLIMIT=%s", memoryLimit>>10, memorySoft),
		args: []string{
			"--cache-bytes", memoryStored, "--max-inflight-bytes", memoryWritten,
		},
		before: func(s *scene) { s.writeLarge(http.MethodPost) },
		fault:  (*scene).largeLists,
	}}
}

// writeLarge creates large objects, or changes every one of them (PATCH), and so adds as much as they are
// to the history of each form.
func (s *scene) writeLarge(method string) {
	s.Helper()
	// Of the answers nothing but metadata is wanted: to read more takes most of the time.
	direct := s.direct.With("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	var group errgroup.Group
	group.SetLimit(4)
	for i := range largeObjects {
		ns, name := s.namespaces[0], fmt.Sprintf("large-%03d", i)
		if i < fewLarge {
			ns = s.namespaces[1]
		}
		path, body := revisions.Path(ns)+"/"+name, fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, mathrand.Int())
		if method == http.MethodPost {
			random := make([]byte, largeSize/2) // of which little can be compressed
			_, _ = rand.Read(random)
			path, body = revisions.Path(ns), fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"revision":1,"data":{"text":"%x"}}`,
				revisions.APIVersion, revisions.Name, name, random)
		}
		group.Go(func() error {
			return poll.Retry(s.Context(), "writing "+name, func() error {
				a, err := s.Write(s.Context(), direct, revisions, method, path, json.RawMessage(body))
				if a.Code == http.StatusConflict { // it was created before, and the answer came too late
					return nil
				}
				return err
			})
		})
	}
	s.must(group.Wait())
}

// largeLists lets many ask for whole large lists, at first fast, then slowly or not at all, while
// all of it is rewritten.
func (s *scene) largeLists() time.Time {
	s.Helper()
	p := s.proxies.All()[0]
	forms := []load.Form{load.AsJSON, load.AsProtobuf}
	// Both forms need not fit: what does not is forwarded.
	known := func(when string) {
		s.must(poll.Retry(s.Context(), "large objects from memory "+when, func() error {
			var found bool
			var errs []error
			for _, f := range forms {
				q := question{Collection: collection{Kind: revisions, Form: f}, Namespace: s.namespaces[1], Query: ask.AnyVersion}
				err := s.fromMemory(s.Context(), q)
				found, errs = found || err == nil, append(errs, err)
				s.put(s.Context(), q, 0)
			}
			if found {
				return nil
			}
			return errors.Join(errs...)
		}))
	}
	known("at the beginning")
	via := ask.MustNew(s, s.viaConfig, patience)
	var reading errgroup.Group
	var hits atomic.Int64
	for i := range atATime {
		f, encoding := forms[i%len(forms)], []string{"identity", "gzip"}[i/len(forms)]
		reading.Go(func() error {
			for range readings {
				if err := poll.Retry(s.Context(), "a large list", func() error {
					a, err := via.With("Accept-Encoding", encoding).GetAs(s.Context(), f.Accept, revisions.Path("")+"?"+ask.AnyVersion)
					if err == nil && a.Code != http.StatusOK {
						err = errors.New(a.String())
					}
					if err == nil && a.FromMemory() {
						hits.Add(1)
					}
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s.writeLarge(http.MethodPatch)
	s.must(reading.Wait())
	token := s.plane.RESTConfig(controlplane.Feed).BearerToken // another caller, with a share of its own
	s.besideSlow(revisions.Path(""), token, func() {
		s.writeLarge(http.MethodPatch)
		known("beside slow and stuck clients")
		s.calm("beside slow and stuck clients")
	})
	known("at the end")
	if hits.Load() == 0 {
		s.Error("no large list came from memory")
	}
	_, peak, err := process.Memory(p.PID())
	s.must(err)
	harness.Log(fmt.Sprintf("faults: %s: of %d whole lists %d from memory; at most %d MiB resident, of %d",
		s.namespaces[0], atATime*readings, hits.Load(), peak>>20, memoryLimit>>20))
	if peak > memoryLimit {
		s.Errorf("it had %d MiB resident", peak>>20)
	}
	return time.Now()
}
