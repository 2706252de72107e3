package watches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// lie falsifies one stream, event by event: it returns what goes on in place of an event.
type lie func(line []byte) ([]byte, error)

// nth makes a lie of the nth event of some types in a stream.
func nth(n int, types string, tell func(line []byte) ([]byte, error)) func() lie {
	return func() lie {
		seen := 0
		return func(line []byte) ([]byte, error) {
			kind, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"type":"`)), []byte(`"`))
			if !strings.Contains(types, string(kind)) {
				return line, nil
			}
			if seen++; seen != n {
				return line, nil
			}
			return tell(line)
		}
	}
}

func replaced(old, by string) func([]byte) ([]byte, error) {
	return func(line []byte) ([]byte, error) { return bytes.Replace(line, []byte(old), []byte(by), 1), nil }
}

var (
	dropped = func([]byte) ([]byte, error) { return nil, nil }
	doubled = func(line []byte) ([]byte, error) { return bytes.Repeat(line, 2), nil }
	revised = regexp.MustCompile(`"resourceVersion":"(\d+)"`)
)

// moved changes the revision.
func moved(by int) func([]byte) ([]byte, error) {
	return func(line []byte) ([]byte, error) {
		return revised.ReplaceAllFunc(line, func(b []byte) []byte {
			revision, _ := strconv.Atoi(string(revised.FindSubmatch(b)[1]))
			return fmt.Appendf(nil, `"resourceVersion":"%d"`, revision+by)
		}), nil
	}
}

// swapped tells the first two events of some types in the wrong order.
func swapped(types string) func() lie {
	return func() lie {
		var held []byte
		hold := nth(1, types, func(line []byte) ([]byte, error) { held = bytes.Clone(line); return nil, nil })()
		return func(line []byte) ([]byte, error) {
			if len(held) > 0 {
				line, held = append(bytes.Clone(line), held...), nil
				return line, nil
			}
			return hold(line)
		}
	}
}

const changes = "ADDED MODIFIED DELETED"

// Forms that lies are told in.
func resuming(f *form) { f.start, f.initial, f.bookmarks = within, absent, true }
func ending(f *form)   { resuming(f); f.seconds = 3 } // there is a bookmark before the end
func listing(f *form)  { f.start, f.initial, f.bookmarks = zero, yes, true }

// TestNoticesLies: each falsehood that a stream can tell is seen.
func TestNoticesLies(t *testing.T) {
	harness.Long(t)
	needsStreamingLists(t)
	churn(t, 60)
	warm(t)
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]struct {
			form  func(*form)
			tell  func() lie
			kinds []differential.Kind
		}{
			"dropped":           {resuming, nth(3, changes, dropped), []differential.Kind{Events}},
			"dropped-first":     {resuming, nth(1, changes, dropped), []differential.Kind{Events}},
			"doubled":           {resuming, nth(2, changes, doubled), []differential.Kind{Events}},
			"reordered":         {resuming, swapped(changes), []differential.Kind{Events}},
			"added-modified":    {resuming, nth(1, "ADDED", replaced(`"ADDED"`, `"MODIFIED"`)), []differential.Kind{Events}},
			"modified-added":    {resuming, nth(1, "MODIFIED", replaced(`"MODIFIED"`, `"ADDED"`)), []differential.Kind{Events}},
			"deleted-modified":  {resuming, nth(1, "DELETED", replaced(`"DELETED"`, `"MODIFIED"`)), []differential.Kind{Events}},
			"deleted-bytes":     {resuming, nth(1, "DELETED", replaced(`"uid":"`, `"uid":"0`)), []differential.Kind{Events}},
			"deleted-revision":  {resuming, nth(1, "DELETED", moved(-1)), []differential.Kind{Events}},
			"bookmark-ahead":    {ending, nth(1, "BOOKMARK", moved(30)), []differential.Kind{Events}},
			"bookmark-bytes":    {ending, nth(1, "BOOKMARK", replaced(`"metadata":{`, `"metadata":{"creationTimestamp":null,`)), []differential.Kind{Bookmarks}},
			"end-dropped":       {listing, nth(1, "BOOKMARK", dropped), []differential.Kind{Events}},
			"end-doubled":       {listing, nth(1, "BOOKMARK", doubled), []differential.Kind{Events}},
			"end-ahead":         {listing, nth(1, "BOOKMARK", moved(20)), []differential.Kind{Events}},
			"end-behind":        {listing, nth(1, "BOOKMARK", moved(-1000)), []differential.Kind{Events}},
			"end-not-annotated": {listing, nth(1, "BOOKMARK", replaced(`"k8s.io/initial-events-end":"true"`, `"k8s.io/other":"true"`)), []differential.Kind{Events, Bookmarks}},
			"initial-dropped":   {listing, nth(2, "ADDED", dropped), []differential.Kind{Events}},
			"initial-reordered": {listing, swapped("ADDED"), []differential.Kind{Events}},
			"initial-modified":  {listing, nth(1, "ADDED", replaced(`"ADDED"`, `"MODIFIED"`)), []differential.Kind{Events}},
			"initial-bytes":     {listing, nth(1, "ADDED", replaced(`"uid":"`, `"uid":"0`)), []differential.Kind{Events}},
			"ended":             {listing, nth(1, "BOOKMARK", func([]byte) ([]byte, error) { return nil, errors.New("the end") }), []differential.Kind{Ended, Events}},
			"cut":               {listing, nth(1, "BOOKMARK", func([]byte) ([]byte, error) { return nil, hop.ErrCut }), []differential.Kind{Ended, differential.Silent}},
			"expired": {resuming, nth(1, changes, func([]byte) ([]byte, error) {
				return []byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}` + "\n"), nil
			}), []differential.Kind{Refusal, Events}},
			"spaced": {resuming, nth(1, changes, replaced(`,"object":`, `, "object":`)), []differential.Kind{Ended}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				front := front(t)
				var mu sync.Mutex
				streams := map[*http.Request]lie{}
				front.OnLine(func(r *http.Request, line []byte) ([]byte, error) {
					mu.Lock()
					tell := streams[r]
					if tell == nil {
						tell = test.tell()
						streams[r] = tell
					}
					mu.Unlock()
					return tell(line)
				})
				notices(t, front, test.form, false, test.kinds...)
			})
		}
	})
}

// needsStreamingLists skips a test of lies that are told in a streaming list.
func needsStreamingLists(t *testing.T) {
	t.Helper()
	if !*shared.WatchList {
		t.Skip("kube-apiserver has no streaming lists")
	}
}

// front is a hop in front of shared.Healthy, which tells lies.
func front(t *testing.T) *hop.Hop {
	t.Helper()
	return hop.Run(t, shared.Healthy.URL(), shared.Healthy.CA())
}

// notices compares until there is a difference, of one of some kinds.
func notices(t *testing.T, front *hop.Hop, forms func(*form), follow bool, kinds ...differential.Kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	report := NewReport()
	c := comparator(differential.NewSide("listproxy", front.URL(), front.CA()), report, Options{
		Patience: 4 * time.Second, AdminOnly: true, Resources: []string{"pods", "configmaps", "gadgets"},
		only: func(f *form) {
			f.representation = differential.JSON
			forms(f)
		},
	})
	go func() {
		select {
		case <-report.Found():
			cancel()
		case <-ctx.Done():
		}
	}()
	if follow {
		for round := uint64(0); ctx.Err() == nil; round++ {
			some, end := context.WithTimeout(ctx, 8*time.Second)
			c.Follow(some, *shared.Seed+round, 3)
			end()
		}
	} else {
		c.Run(ctx, *shared.Seed, 4)
	}
	found := report.Kinds()
	seen := 0
	for _, kind := range kinds {
		seen += found[kind]
	}
	if seen == 0 || found[Reference] > 0 {
		t.Errorf("not noticed, or as something else: %v", report)
	}
	t.Logf("noticed after %d comparisons: %v", report.Comparisons(), found)
}
