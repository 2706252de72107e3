package ask

import (
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// List is what a list says, as far as tests read it.
type List struct {
	Revision uint64
	Next     string // the token for the next page
	Objects  []Identity
}

// Identity of an object and its version.
type Identity struct{ Namespace, Name, UID, ResourceVersion string }

// IdentityOf returns that of a decoded object.
func IdentityOf(o metav1.Object) Identity {
	return Identity{o.GetNamespace(), o.GetName(), string(o.GetUID()), o.GetResourceVersion()}
}

// ReadList decodes a list in a representation, which is what was asked for as Accept.
func ReadList(accept string, body []byte) (List, error) {
	if accept == Protobuf {
		return readProtobuf(body)
	}
	var decoded struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []struct{ Metadata Identity }
	}
	if err := json.Unmarshal(body, &decoded); err != nil {
		return List{}, err
	}
	l, err := newList(decoded.Metadata.ResourceVersion, decoded.Metadata.Continue)
	for _, i := range decoded.Items {
		l.Objects = append(l.Objects, i.Metadata)
	}
	return l, err
}

func readProtobuf(body []byte) (List, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return List{}, err
	}
	accessor, err := meta.ListAccessor(decoded)
	if err != nil {
		return List{}, err
	}
	l, err := newList(accessor.GetResourceVersion(), accessor.GetContinue())
	if err != nil {
		return List{}, err
	}
	err = meta.EachListItem(decoded, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			l.Objects = append(l.Objects, IdentityOf(m))
		}
		return err
	})
	return l, err
}

func newList(resourceVersion, next string) (List, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return List{}, fmt.Errorf("the list's revision: %w", err)
	}
	return List{Revision: revision, Next: next}, nil
}
