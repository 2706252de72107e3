// Package body reads and compares the bodies of answers: the metadata of a list in any
// representation, and continue tokens.
package body

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
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
	// rest is all else: in JSON the text but for the token, in protobuf all but the metadata.
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

// readProtobuf reads an envelope. Of a list in it only the metadata matter: the first field of every list
// but those of meta.k8s.io/v1beta1, where they are the second.
func readProtobuf(envelope []byte) (l list, err error) {
	if err := l.envelope.Unmarshal(envelope); err != nil {
		return l, fmt.Errorf("a protobuf envelope: %w", err)
	}
	l.rest, l.envelope.Raw = l.envelope.Raw, nil
	var of metav1.PartialObjectMetadataList
	var old metav1beta1.PartialObjectMetadataList
	if l.envelope.APIVersion == "meta.k8s.io/v1beta1" && l.envelope.Kind == "PartialObjectMetadataList" {
		err = old.Unmarshal(l.rest)
		of.ListMeta = old.ListMeta
	} else {
		err = of.Unmarshal(l.rest)
	}
	if err != nil {
		return l, fmt.Errorf("the protobuf of a list: %w", err)
	}
	l.meta = of.ListMeta
	text, err := l.meta.Marshal()
	l.rest = bytes.Replace(l.rest, protowire.AppendBytes(nil, text), nil, 1)
	return l, err
}
