// Package body reads and compares the bodies of answers: the metadata of a list in any
// representation, and continue tokens.
package body

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Token is the inside of a continue token.
type Token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// DecodeToken reads a token as kube-apiserver writes it.
func DecodeToken(text string) (Token, error) {
	var t Token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	return t, nil
}

// Encode writes the token as kube-apiserver does.
func (t Token) Encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // two strings and a number have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// sameToken reports whether two tokens go on at the same place. A page that kube-apiserver read
// from etcd has a token without the leading slash in start; nothing else may differ.
func sameToken(a, b string) bool {
	ta, errA := DecodeToken(a)
	tb, errB := DecodeToken(b)
	if errA != nil || errB != nil {
		return a == b
	}
	ta.Start, tb.Start = strings.TrimPrefix(ta.Start, "/"), strings.TrimPrefix(tb.Start, "/")
	return ta == tb
}

// SameButToken reports whether two lists differ only in how they write one and the same token.
func SameButToken(a, b []byte) bool {
	ta, tb, ok := tokensOfSame(a, b)
	return ok && ta != "" && sameToken(ta, tb)
}

// OnlyTokenMissing reports whether the list a differs from the list b only in that it has no token,
// and returns that of b.
func OnlyTokenMissing(a, b []byte) (string, bool) {
	ta, tb, ok := tokensOfSame(a, b)
	return tb, ok && ta == "" && tb != ""
}

// tokensOfSame returns the tokens of two lists, if these are the same without them.
func tokensOfSame(a, b []byte) (ta, tb string, same bool) {
	la, errA := read(a)
	lb, errB := read(b)
	if errA != nil || errB != nil {
		return "", "", false
	}
	ta, tb = la.meta.Continue, lb.meta.Continue
	la.meta.Continue, lb.meta.Continue = "", ""
	return ta, tb, reflect.DeepEqual(la, lb)
}

// ListMeta reads what a list says about itself, in JSON or protobuf.
func ListMeta(body []byte) (metav1.ListMeta, error) {
	l, err := read(body)
	return l.meta, err
}

// list is one that was taken apart.
type list struct {
	meta metav1.ListMeta
	// envelope is that of one in protobuf, empty.
	envelope runtime.Unknown
	// rest is all else: in JSON the text but for the token, in protobuf the other fields.
	rest []byte
}

var protobufMagic = []byte("k8s\x00") // begins every body in Kubernetes' protobuf

func read(body []byte) (list, error) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		return readProtobuf(raw)
	}
	var o struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return list{}, fmt.Errorf("a list: %w", err)
	}
	l, meta := list{meta: o.Metadata, rest: body}, o.Metadata
	if meta.Continue == "" {
		return l, nil
	}
	// Built-in types write nothing where there is no token, custom ones an empty one.
	for _, text := range []string{`,"continue":"` + meta.Continue + `"`, ",\n    \"continue\": \"" + meta.Continue + `"`} {
		if l.rest = bytes.Replace(body, []byte(text), nil, 1); len(l.rest) < len(body) {
			return l, nil
		}
	}
	l.rest = bytes.Replace(body, []byte(`"`+meta.Continue+`"`), []byte(`""`), 1)
	return l, nil
}

// readProtobuf reads an envelope. The ListMeta is the first field of every list in it but those of
// meta.k8s.io/v1beta1, where it is the second.
func readProtobuf(envelope []byte) (l list, err error) {
	var u runtime.Unknown
	if err := u.Unmarshal(envelope); err != nil {
		return l, fmt.Errorf("a protobuf envelope: %w", err)
	}
	const lengthDelimited = 2
	own, found := uint64(1), false
	if u.APIVersion == "meta.k8s.io/v1beta1" && u.Kind == "PartialObjectMetadataList" {
		own = 2
	}
	for raw := u.Raw; len(raw) > 0; {
		tag, n := binary.Uvarint(raw)
		size, m := binary.Uvarint(raw[max(0, n):])
		if n <= 0 || m <= 0 || tag&7 != lengthDelimited || size > uint64(len(raw)-n-m) {
			return l, errors.New("the protobuf of a list is none")
		}
		end := n + m + int(size) // #nosec G115 -- not larger than raw
		if tag>>3 != own || found {
			l.rest = append(l.rest, raw[:end]...)
		} else if err := l.meta.Unmarshal(raw[n+m : end]); err != nil {
			return l, fmt.Errorf("the metadata of a list: %w", err)
		} else {
			found = true
		}
		raw = raw[end:]
	}
	l.envelope, l.envelope.Raw = u, nil
	if !found {
		return l, errors.New("the protobuf of a list has no metadata")
	}
	return l, nil
}
