package ask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is the part of a list that tests read.
type List struct {
	Revision uint64
	Next     string // the token of the next page, or ""
	Objects  []Identity
}

// Identity identifies an object and its version.
type Identity struct{ Namespace, Name, UID, ResourceVersion string }

// IdentityOf returns the identity of a decoded object.
func IdentityOf(o metav1.Object) Identity {
	return Identity{
		Namespace:       o.GetNamespace(),
		Name:            o.GetName(),
		UID:             string(o.GetUID()),
		ResourceVersion: o.GetResourceVersion(),
	}
}

// Versions returns the UIDs and revisions of objects, by namespace/name.
func Versions(objects []Identity) map[string]string {
	all := map[string]string{}
	for _, o := range objects {
		all[o.Namespace+"/"+o.Name] = o.UID + " at " + o.ResourceVersion
	}
	return all
}

// ReadList reads a list, in JSON or in protobuf.
func ReadList(body []byte) (List, error) {
	var decoded metav1.PartialObjectMetadataList
	if err := Decode(body, &decoded); err != nil {
		return List{}, err
	}
	revision, err := strconv.ParseUint(decoded.ResourceVersion, 10, 64)
	if err != nil {
		return List{}, fmt.Errorf("the list's revision: %w", err)
	}
	l := List{Revision: revision, Next: decoded.Continue}
	for i := range decoded.Items {
		l.Objects = append(l.Objects, IdentityOf(&decoded.Items[i]))
	}
	return l, nil
}

// Decode reads an object or a list, in JSON or in protobuf. The metadata of any kind can be read into a
// PartialObjectMetadata or its list: in protobuf they are the first field of every object and list, and items are the second
// field of a list.
func Decode(body []byte, object interface{ Unmarshal(b []byte) error }) error {
	inner, packed := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !packed {
		return json.Unmarshal(body, object)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(inner); err != nil {
		return err
	}
	return object.Unmarshal(envelope.Raw)
}
