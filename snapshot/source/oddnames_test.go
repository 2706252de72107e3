package source

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestNameSelector: NameSelector selects a name even if the name has the separators of field selectors. Names of RBAC objects
// may have them.
func TestNameSelector(t *testing.T) {
	const separators = "a,b=c"
	selector, err := fields.ParseSelector(NameSelector(separators))
	expect.NoError(t, err)
	if !selector.Matches(fields.Set{wire.NameField: separators}) {
		t.Errorf("the selector %q does not match the name %q", selector, separators)
	}
}

// TestKey: Key joins a namespace and a name, which may have characters beyond ASCII.
func TestKey(t *testing.T) {
	source := Source{Collection: CollectionKey{Namespaced: true}}
	key, err := source.Key(wire.ObjectMeta{Namespace: "n", Name: "𐀀:a"})
	expect.NoError(t, err)
	expect.Same(t, "n/𐀀:a", key)
}

// TestKeyRefusesLostBytes: Key refuses a namespace or a name with U+FFFD. In JSON, U+FFFD stands for lost bytes that were not
// UTF-8, and without them the order of keys is unknown.
func TestKeyRefusesLostBytes(t *testing.T) {
	source := Source{Collection: CollectionKey{Namespaced: true}}
	for _, m := range []wire.ObjectMeta{{Namespace: "n", Name: "a\ufffd"}, {Namespace: "\ufffd", Name: "a"}} {
		if _, err := source.Key(m); !errors.Is(err, wire.ErrForm) {
			t.Errorf("the key of %+v: got error %v, want %v", m, err, wire.ErrForm)
		}
	}
}
