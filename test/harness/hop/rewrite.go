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

// body changes the revisions in a body of the upstream, an object or a list, and adds unknown fields.
func (o Odd) body(contentType string, b []byte, change func(string) string) []byte {
	if strings.HasPrefix(contentType, ask.Protobuf) {
		return o.inProtobuf(b, change)
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
			return beginOfMetadata.ReplaceAll(found, []byte(`"metadata":${1}{$2"future":${1}true,$2"$3`))
		})
	}
	return b
}

// The places of revisions, and of continue tokens, which are base64 with a revision inside. An expression has three groups; the
// second is the revision or the token. Expressions for long bodies begin with a word, since package regexp finds such
// places fast.
var (
	revisionInQuery   = regexp.MustCompile(`((?:^|&)resourceVersion=)(\d+)()`)
	revisionInObject  = regexp.MustCompile(`(resourceVersion"?: ?")(\d+)(")`)
	revisionInMessage = regexp.MustCompile(`(resource version: |current: |too old resource version: \d+ \()(\d+)()`)
	revisionInToken   = regexp.MustCompile(`("rv":)(\d+)()`)
	continueToken     = regexp.MustCompile(`(continue(?:=|"?: ?"?))([\w-]{8,})()`)
)

// beginOfMetadata matches metadata up to the name of the first member, which is the third group. The first and second are the
// white space before the brace and behind it.
var beginOfMetadata = regexp.MustCompile(`"metadata":( ?)\{(\s*)"(\w+)`)

// replaceAt changes the second group at each place.
func replaceAt(b []byte, place *regexp.Regexp, change func(string) string) []byte {
	return place.ReplaceAllFunc(b, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		return []byte(string(parts[1]) + change(string(parts[2])) + string(parts[3]))
	})
}

// changeToken returns a function that changes the revision inside a continue token.
func changeToken(change func(string) string) func(string) string {
	return func(text string) string {
		read, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return text
		}
		return base64.RawURLEncoding.EncodeToString(replaceAt(read, revisionInToken, change))
	}
}

// The numbers of protobuf fields: of every kind, of a list, of a Status, of ListMeta and of ObjectMeta.
const (
	metadataField       = 1
	itemsField          = 2
	messageField        = 3
	listRevisionField   = 2
	listContinueField   = 3
	objectRevisionField = 6
	unknownField        = 1000 // no kind has it
)

// inProtobuf changes an object or a list in protobuf as body does.
func (o Odd) inProtobuf(b []byte, change func(string) string) []byte {
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
