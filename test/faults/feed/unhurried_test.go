package feed

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// gaveUp returns what the rig's listproxy says of having given up a collection because the upstream took
// too long for an answer. It has to: what it cannot prove in time it drops, and loads again.
func (r *rig) gaveUp(k kind) []string {
	var lines []string
	for line := range strings.Lines(r.proxy.Log()) {
		if !strings.Contains(line, `msg="collection cannot be followed" collection="`+k.plural+".") {
			continue
		}
		for _, cause := range []string{
			"a resumed watch does not tell the change at revision", // within five seconds
			"the loaded state could not be compared with the upstream's",
			"context deadline exceeded",
		} {
			if strings.Contains(line, cause) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

// unhurried fails with the error of look, which is that the feed loaded more often than it had to, or
// lost what it knew. If listproxy has given the collection up because all took too long here, look has
// seen nothing of what it is for, and is run once more, with a rig and a namespace of its own. A listproxy
// that gives up each time fails.
func (r *rig) unhurried(t *testing.T, k kind, namespace string, look func(r *rig, namespace string) error) {
	t.Helper()
	err := look(r, namespace)
	if late := r.gaveUp(k); err != nil && len(late) > 0 {
		t.Logf("once more, after %v\n%s", err, strings.Join(late, ""))
		again := newRig(t, r.cluster, r.options)
		err = look(again, again.namespace(t, namespace+"-again-"+k.plural))
	}
	if err != nil {
		t.Error(err)
	}
}

// comes is expect with an error for who has more to say.
func (r *rig) comes(source, path string, q url.Values) (ask.Answer, error) {
	r.t.Helper()
	a := r.ask(path, q)
	if a.Source() != source {
		return a, fmt.Errorf("%s?%s came from %q, not %q", path, q.Encode(), a.Source(), source)
	}
	return a, nil
}

// known returns an error if one of the revisions is not known.
func (r *rig) known(list string, revisions ...string) error {
	r.t.Helper()
	for _, revision := range revisions {
		if _, err := r.comes(hitExact, list, exactly(revision)); err != nil {
			return err
		}
	}
	return nil
}

// loaded returns an error if the state was not loaded so many times.
func (r *rig) loaded(k kind, wanted int) error {
	if n := r.count(k, fullLoad); n != wanted {
		return fmt.Errorf("the state was loaded %d times, not %d", n, wanted)
	}
	return nil
}
