package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

// Rule 3: an event that cannot be, or cannot be read, drops all that is held. The state is
// loaded again, and what was known before is not believed any more.
func TestDoubt(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "doubt")
	swap := func(old, with string) func([][]byte) [][]byte {
		return func(lines [][]byte) [][]byte {
			lines[0] = bytes.Replace(lines[0], []byte(old), []byte(with), 1)
			return lines
		}
	}
	tests := []struct {
		name string
		kind kind
		// change has two lines of the watch: an object named "new" was added, then modified.
		change func(lines [][]byte) [][]byte
	}{
		{"not JSON", configMaps, func(lines [][]byte) [][]byte {
			return [][]byte{append(lines[0][:len(lines[0])/2:len(lines[0])/2], '\n'), lines[1]}
		}},
		{"an empty line", limitRanges, func(lines [][]byte) [][]byte { return [][]byte{{'\n'}, lines[0], lines[1]} }},
		{"an unknown type", podTemplates, swap(`"type":"ADDED"`, `"type":"CHANGED"`)},
		{"twice the same event", resourceQuotas, func(lines [][]byte) [][]byte { return [][]byte{lines[0], lines[0], lines[1]} }},
		{"out of order", networkPolicies, func(lines [][]byte) [][]byte { return [][]byte{lines[1], lines[0]} }},
		{"a late event", budgets, func(lines [][]byte) [][]byte {
			late := bytes.Replace(lines[0], []byte(`"name":"new"`), []byte(`"name":"late"`), 1)
			return [][]byte{lines[0], lines[1], late}
		}},
		{"another kind", claims, swap(`"kind":"PersistentVolumeClaim"`, `"kind":"PersistentVolume"`)},
		{"another version", deployments, swap(`"apiVersion":"apps/v1"`, `"apiVersion":"apps/v2"`)},
		{"added twice", daemonSets, func(lines [][]byte) [][]byte {
			return [][]byte{lines[0], bytes.Replace(lines[1], []byte(`"MODIFIED"`), []byte(`"ADDED"`), 1)}
		}},
		{"an unknown object modified", replicaSets, swap(`"type":"ADDED"`, `"type":"MODIFIED"`)},
		{"an unknown object deleted", statefulSets, swap(`"type":"ADDED"`, `"type":"DELETED"`)},
		{"an object without a name", revisions, swap(`"name":"new"`, `"name":""`)},
		{"an object without a namespace", endpointSlices, swap(`"namespace":"`, `"namespace":"","was":"`)},
		{"an event without a revision", controllers, swap(`"resourceVersion":"`, `"resourceVersion":"","was":"`)},
		{"an event without an object", widgets, func(lines [][]byte) [][]byte {
			return [][]byte{[]byte(`{"type":"ADDED"}` + "\n"), lines[1]}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.unhurried(t, tt.kind, ns, func(r *rig, ns string) error { return doubts(t, r, tt.kind, ns, tt.change) })
		})
	}
}

// doubts returns an error if the change does not make the feed load again, once.
func doubts(t *testing.T, r *rig, k kind, ns string, change func(lines [][]byte) [][]byte) error {
	t.Helper()
	r.create(t, k, ns, "old")
	r.await(hitAny, k.Path(""), anyVersion())
	before := r.touch(t, k, ns, "old", "once")
	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(before))
	if err := r.known(k.Path(ns), before); err != nil {
		return err
	}

	r.nextTwo(k, ns, change)
	r.create(t, k, ns, "new")
	after := r.touch(t, k, ns, "new", "now")

	r.until("loading again", func() error {
		if n := r.count(k, fullLoad); n < 2 {
			return fmt.Errorf("%d loads", n)
		}
		return nil
	})
	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(after))
	if _, err := r.comes(hitAny, k.Path(""), anyVersion()); err != nil {
		return err
	}
	if _, err := r.comes(fwdHistory, k.Path(ns), exactly(before)); err != nil {
		return err
	}
	return r.loaded(k, 2)
}

// nextTwo takes the two lines about an object named "new" in the namespace, which is added and then
// modified, and hands on what change makes of them, once.
func (r *rig) nextTwo(k kind, namespace string, change func(lines [][]byte) [][]byte) {
	var mu sync.Mutex
	var held [][]byte
	done := false
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if done || !of(req, k) || !isAbout(line, namespace, `"name":"new"`) {
			return line, nil
		}
		if bytes.Contains(line, []byte(`"type":"ADDED"`)) {
			held = nil // a watch that was resumed tells it again
		}
		held = append(held, bytes.Clone(line))
		if len(held) < 2 {
			return nil, nil
		}
		done = true
		return bytes.Join(change(held), nil), nil
	})
}

// isAbout says whether a line of a watch is about an object in the namespace that has a mark.
func isAbout(line []byte, namespace, mark string) bool {
	return bytes.Contains(line, fmt.Appendf(nil, `"namespace":%q`, namespace)) && bytes.Contains(line, []byte(mark))
}
