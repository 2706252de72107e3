package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of fields in the generated.proto files of apimachinery, by message.
const (
	// every object and every list
	metadataField = 1

	// every list
	listItemsField = 2

	// metav1.ObjectMeta
	metaNameField      = 1
	metaNamespaceField = 3
	metaUIDField       = 5 // only in FieldPaths
	metaRevisionField  = 6
	metaLabelsField    = 11

	// runtime.Unknown, the wrapper
	wrapperTypeField   = 1
	wrapperObjectField = 2

	// runtime.TypeMeta
	typeAPIVersionField = 1
	typeKindField       = 2

	// metav1.WatchEvent
	eventTypeField   = 1
	eventObjectField = 2

	// runtime.RawExtension, the object of a WatchEvent
	extensionRawField = 1
)

// wireField is one field of a protobuf message.
type wireField struct {
	begin, end int // The field is message[begin:end], with its tag.
	number     protowire.Number
	wireType   protowire.Type
	content    []byte // The value if wireType is BytesType, not nil even if it is empty; nil for other types.
	varint     uint64 // The value if wireType is VarintType; 0 for other types.
}

// walkFields calls visit with each field of a message, in order. It stops at the first error of visit, and returns it.
func walkFields(message []byte, visit func(wireField) error) error {
	for at := 0; at < len(message); {
		number, wireType, tagSize := protowire.ConsumeTag(message[at:])
		if tagSize < 0 { // A negative size is an error.
			return errMalformed
		}
		f := wireField{begin: at, number: number, wireType: wireType}
		value := message[at+tagSize:]
		var valueSize int
		switch wireType {
		case protowire.BytesType:
			f.content, valueSize = protowire.ConsumeBytes(value)
		case protowire.VarintType:
			f.varint, valueSize = protowire.ConsumeVarint(value)
		default:
			valueSize = protowire.ConsumeFieldValue(number, wireType, value)
		}
		if valueSize < 0 {
			return errMalformed
		}
		at += tagSize + valueSize
		f.end = at
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// splitMessage sets *contents[i] to the content of field i+1 of a message. For example, splitMessage(m, "an event", &a, &b)
// sets a to field 1 and b to field 2. A content stays nil if the message has no such field. name is the message's name in an
// error.
//
// A field with a higher number is an error, since the caller does not know it. A repeated field is an error, since some clients
// could read the first, and others the last.
func splitMessage(message []byte, name string, contents ...*[]byte) error {
	return walkFields(message, func(f wireField) error {
		if int(f.number) > len(contents) {
			return f.unexpected(name)
		}
		return f.setOnce(contents[f.number-1], name)
	})
}

// singularField returns the field with a number in a message, which is an object or its metadata. If there is none, it returns
// the zero wireField, whose content is nil. It is an error if there are several, or if the field is not of BytesType.
func singularField(message []byte, number protowire.Number) (found wireField, err error) {
	err = walkFields(message, func(f wireField) error {
		switch {
		case f.number != number:
			return nil
		case f.wireType != protowire.BytesType, found.content != nil:
			return f.unexpected("an object")
		}
		found = f
		return nil
	})
	return found, err
}

// setOnce sets *content to the content of f. It returns an error if f is not of BytesType, or if *content is set already.
// message is the message's name in the error.
func (f wireField) setOnce(content *[]byte, message string) error {
	if f.wireType != protowire.BytesType || *content != nil {
		return f.unexpected(message)
	}
	*content = f.content
	return nil
}

// unexpected returns the error for a field that the message must not have, or not twice, or not with this type.
func (f wireField) unexpected(message string) error {
	return fmt.Errorf("%w: %s with a field %d of type %d", errMalformed, message, f.number, f.wireType)
}

// parseLabel parses an entry of the map of labels. label is the key and the value.
func (f wireField) parseLabel() (label [2][]byte, err error) {
	if f.wireType != protowire.BytesType {
		return label, f.unexpected("metadata")
	}
	err = splitMessage(f.content, "a map entry", &label[0], &label[1])
	return label, err
}
