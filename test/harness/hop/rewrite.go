package hop

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// changeBody returns the body of an answer, an object or a list, in which change has replaced each revision. With
// UnknownFields, it also adds an unknown field to the metadata of each object.
func (o Odd) changeBody(contentType string, b []byte, change func(string) string) []byte {
	if strings.HasPrefix(contentType, ask.Protobuf) {
		return o.changeProtobuf(b, change)
	}
	b = replaceAt(b, revisionInObject, change)
	b = replaceAt(b, continueToken, changeToken(change))
	if bytes.Contains(b, []byte("resource version: ")) {
		b = replaceAt(b, revisionInMessage, change)
	}
	if o.UnknownFields {
		b = beginOfMetadata.ReplaceAllFunc(b, func(found []byte) []byte {
			firstMember := string(beginOfMetadata.FindSubmatch(found)[3])
			if firstMember == "resourceVersion" || firstMember == "continue" {
				return found // metadata of a list or a bookmark
			}
			// {"metadata":{"name": becomes {"metadata":{"future":true,"name":, with the white space of the first member.
			return beginOfMetadata.ReplaceAll(found, []byte(`"metadata":${1}{$2"future":${1}true,$2"$3`))
		})
	}
	return b
}

// These match the places of revisions, and of continue tokens, which are base64 with a revision inside. Each has three groups:
// the text before, the revision or the token, and the text behind, which may be empty. In "resourceVersion":"17" they are
// resourceVersion":", 17 and ". Expressions for long bodies begin with a word, since package regexp finds such places fast.
var (
	revisionInQuery   = regexp.MustCompile(`((?:^|&)resourceVersion=)(\d+)()`)
	revisionInObject  = regexp.MustCompile(`(resourceVersion"?: ?")(\d+)(")`)
	revisionInMessage = regexp.MustCompile(`(resource version: |current: |too old resource version: \d+ \()(\d+)()`)
	revisionInToken   = regexp.MustCompile(`("rv":)(\d+)()`)
	continueToken     = regexp.MustCompile(`(continue(?:=|"?: ?"?))([\w-]{8,})()`)
)

// beginOfMetadata matches metadata up to the name of its first member: "metadata":{"name". Its three groups are the white space
// before the brace, the white space behind the brace, and the name.
var beginOfMetadata = regexp.MustCompile(`"metadata":( ?)\{(\s*)"(\w+)`)

// replaceAt returns b in which change has replaced the revision or token, the second group, at each place.
func replaceAt(b []byte, place *regexp.Regexp, change func(string) string) []byte {
	return place.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		return []byte(string(parts[1]) + change(string(parts[2])) + string(parts[3]))
	})
}

// changeToken returns a function that replaces the revision inside a continue token. Other texts stay as they are.
func changeToken(change func(string) string) func(string) string {
	return func(text string) string {
		read, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return text
		}
		return base64.RawURLEncoding.EncodeToString(replaceAt(read, revisionInToken, change))
	}
}

// The numbers of protobuf fields.
const (
	metadataField       = 1    // of every kind
	itemsField          = 2    // of a list
	messageField        = 3    // of a Status
	listRevisionField   = 2    // of ListMeta
	listContinueField   = 3    // of ListMeta
	objectRevisionField = 6    // of ObjectMeta
	unknownField        = 1000 // of nothing
)

// changeProtobuf is changeBody for an object or a list in protobuf.
func (o Odd) changeProtobuf(b []byte, change func(string) string) []byte {
	var u runtime.Unknown
	if !bytes.HasPrefix(b, magic) || u.Unmarshal(b[len(magic):]) != nil {
		return b
	}
	isList := strings.HasSuffix(u.Kind, "List")
	u.Raw = editFields(u.Raw, func(field protowire.Number, content []byte) []byte {
		switch {
		case field == metadataField && (isList || u.Kind == "Status"):
			return editListMeta(content, change)
		case field == metadataField:
			return o.editObjectMeta(content, change)
		case field == itemsField && isList:
			return editFields(content, func(field protowire.Number, content []byte) []byte {
				if field == metadataField {
					return o.editObjectMeta(content, change)
				}
				return content
			})
		case field == messageField && u.Kind == "Status":
			return replaceAt(content, revisionInMessage, change)
		}
		return content
	})
	encoded, err := u.Marshal()
	must(err)
	return append(bytes.Clone(magic), encoded...)
}

// editListMeta changes the revision and the token of a ListMeta.
func editListMeta(meta []byte, change func(string) string) []byte {
	return editFields(meta, func(field protowire.Number, content []byte) []byte {
		switch field {
		case listRevisionField:
			return []byte(change(string(content)))
		case listContinueField:
			return []byte(changeToken(change)(string(content)))
		}
		return content
	})
}

// editObjectMeta changes the revision of an ObjectMeta, and adds an unknown field.
func (o Odd) editObjectMeta(meta []byte, change func(string) string) []byte {
	meta = editFields(meta, func(field protowire.Number, content []byte) []byte {
		if field == objectRevisionField {
			return []byte(change(string(content)))
		}
		return content
	})
	if o.UnknownFields {
		meta = protowire.AppendString(protowire.AppendTag(meta, unknownField, protowire.BytesType), "future")
	}
	return meta
}

// magic is the prefix of an object in protobuf.
var magic = []byte("k8s\x00")

// editFields returns a protobuf message in which change has replaced the content of each length-delimited field.
func editFields(message []byte, change func(protowire.Number, []byte) []byte) (edited []byte) {
	for len(message) > 0 {
		number, wireType, tagLength := protowire.ConsumeTag(message)
		if tagLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		valueLength := protowire.ConsumeFieldValue(number, wireType, message[tagLength:])
		if valueLength < 0 {
			panic(fmt.Sprintf("not a message: %q", message))
		}
		fieldLength := tagLength + valueLength
		if wireType == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message[tagLength:])
			edited = append(edited, message[:tagLength]...)
			edited = protowire.AppendBytes(edited, change(number, content))
		} else {
			edited = append(edited, message[:fieldLength]...)
		}
		message = message[fieldLength:]
	}
	return edited
}
