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

// The smallest memory limit that the chart accepts in round units, and the flags that it derives from the limit
// (checkMemory in test/chart).
const (
	memoryLimit      = 1 << 30
	goMemLimit       = "921MiB"
	cacheBytes       = "242Mi"
	maxInflightBytes = "128Mi"
)

const (
	// largeObjects is the number of large objects, and largeSize the bytes of each. Together they take 60 MiB in JSON, and 60
	// MiB in protobuf. The case changes each object twice, which adds 120 MiB of history to both. That makes 360 MiB, more than
	// cacheBytes.
	largeObjects = 240
	largeSize    = 256 << 10
	// comparedLarge is the number of large objects in the second namespace, whose lists are small enough to be compared often.
	comparedLarge = 4
	// readers read whole lists, readsEach times each, as fast as they can.
	readers   = 4
	readsEach = 2
)

// revisionKind is the kind of large objects: kube-apiserver does not validate their data.
var revisionKind = kind{APIVersion: "apps/v1", Name: "ControllerRevision", Plural: "controllerrevisions"}

// memoryCases run listproxy with no more memory than the chart's smallest pod has.
//
// "ulimit -d" sets RLIMIT_DATA, which needs no privileges. Since Linux 4.7 it limits the private, writable mappings of a
// process, whether they are used or not. Beyond the limit Go ends the process with "out of memory". Resident memory also has
// the program's text. It is checked at the end of the case.
func memoryCases() []faultCase {
	if runtime.GOOS != "linux" {
		return nil // no RLIMIT_DATA, and no resident memory of another process
	}
	return []faultCase{{
		name: "memory_bounded", withoutRace: true,
		shell:   fmt.Sprintf("ulimit -d %d\nexport GOMEMLIMIT=%s", memoryLimit>>10, goMemLimit),
		args:    []string{"--cache-bytes", cacheBytes, "--max-inflight-bytes", maxInflightBytes},
		prepare: func(s *scene) { s.writeLarge(http.MethodPost) },
		fault:   (*scene).listLarge,
	}}
}

// writeLarge creates the large objects if method is POST, and changes each of them if it is PATCH. A change of an annotation
// adds all bytes of the object to the history of each representation.
func (s *scene) writeLarge(method string) {
	s.Helper()
	// Answers with metadata alone: reading whole objects would take most of the time.
	direct := s.direct.WithHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	var group errgroup.Group
	group.SetLimit(4)
	for i := range largeObjects {
		namespace, name := s.namespaces[0], fmt.Sprintf("large-%03d", i)
		if i < comparedLarge {
			namespace = s.namespaces[1]
		}
		path := revisionKind.Path(namespace) + "/" + name
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, mathrand.Int())
		if method == http.MethodPost {
			random := make([]byte, largeSize/2) // two hexadecimal digits a byte, which compress little
			_, _ = rand.Read(random)
			path = revisionKind.Path(namespace)
			body = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"revision":1,"data":{"text":"%x"}}`,
				revisionKind.APIVersion, revisionKind.Name, name, random)
		}
		group.Go(func() error {
			return poll.Retry(s.Context(), "writing "+name, func() error {
				a, err := s.Write(s.Context(), direct, revisionKind, method, path, json.RawMessage(body))
				if a.Code == http.StatusConflict { // created by an attempt before, whose answer came too late
					return nil
				}
				return err
			})
		})
	}
	s.must(group.Wait())
}

// listLarge changes every large object twice. During the first round clients read whole lists as fast as they can, during the
// second slowly or not at all.
func (s *scene) listLarge() time.Time {
	s.Helper()
	p := s.firstProxy()
	s.awaitLargeHit("at the beginning")
	var reading errgroup.Group
	hits := s.startReaders(&reading)
	s.writeLarge(http.MethodPatch)
	s.must(reading.Wait())
	// The slow clients are another caller than the case's, since listproxy limits what each caller may hold.
	token := s.plane.RESTConfig(controlplane.Feed).BearerToken
	s.whileSlowClientsRead(revisionKind.Path(""), token, func() {
		s.writeLarge(http.MethodPatch)
		s.awaitLargeHit("beside slow and stuck clients")
		s.awaitCompared("beside slow and stuck clients")
	})
	s.awaitLargeHit("at the end")
	if hits.Load() == 0 {
		s.Error("no large list came from memory")
	}
	_, peak, err := process.Memory(p.PID())
	s.must(err)
	harness.Log(fmt.Sprintf("faults: %s: of %d whole lists %d from memory; at most %d MiB resident, of %d",
		s.namespaces[0], readers*readsEach, hits.Load(), peak>>20, memoryLimit>>20))
	if peak > memoryLimit {
		s.Errorf("%d MiB were resident, want at most %d", peak>>20, memoryLimit>>20)
	}
	return time.Now()
}

// largeRepresentations are those in which large lists are read. If memory has room for one, lists in the other are forwarded.
var largeRepresentations = []load.Representation{load.AsJSON, load.AsProtobuf}

// awaitLargeHit waits until large objects come from memory in one of the representations. The verifier compares the answers.
func (s *scene) awaitLargeHit(when string) {
	s.Helper()
	s.must(poll.Retry(s.Context(), "large objects from memory "+when, func() error {
		var isHit bool
		var errs []error
		for _, r := range largeRepresentations {
			q := question{Collection: collection{Kind: revisionKind, Representation: r}, Namespace: s.namespaces[1], Query: ask.AnyVersion}
			err := s.requireHit(s.Context(), q)
			isHit = isHit || err == nil
			errs = append(errs, err)
			s.askAndForget(s.Context(), q, noMinRevision)
		}
		if isHit {
			return nil
		}
		return errors.Join(errs...)
	}))
}

// startReaders starts clients that read whole large lists, and returns the number of those from memory so far.
func (s *scene) startReaders(reading *errgroup.Group) *atomic.Int64 {
	s.Helper()
	client := ask.MustNew(s, s.proxiedConfig, patience)
	hits := &atomic.Int64{}
	encodings := []string{"identity", "gzip"}
	for i := range readers { // one for each pair of a representation and an encoding
		accept := largeRepresentations[i%len(largeRepresentations)].Accept
		encoding := encodings[i/len(largeRepresentations)]
		encoded := client.WithHeader("Accept-Encoding", encoding)
		reading.Go(func() error {
			for range readsEach {
				if err := s.readLarge(encoded, accept, hits); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return hits
}

// readLarge reads a whole large list, and counts it in hits if it comes from memory.
func (s *scene) readLarge(client *ask.Client, accept string, hits *atomic.Int64) error {
	return poll.Retry(s.Context(), "a large list", func() error {
		a, err := client.GetAs(s.Context(), accept, revisionKind.Path("")+"?"+ask.AnyVersion)
		if err == nil && a.Code != http.StatusOK {
			err = errors.New(a.String())
		}
		if err == nil && a.FromMemory() {
			hits.Add(1)
		}
		return err
	})
}
