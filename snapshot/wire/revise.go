package wire

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// ReviseItem returns a copy of a list's item with another resourceVersion.
func ReviseItem(encoding Encoding, item []byte, revision uint64) ([]byte, error) {
	before, revised, after, err := encoding.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, revised, after), nil
}

// Revise implements Encoding. For example, at revision 17:
//
//	before  {"metadata":{"name":"a","resourceVersion":
//	revised "17"
//	after   ,"labels":{…}},"spec":…}
func (jsonEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte, err error) {
	begin, end, err := findRevision(item)
	if err != nil {
		return nil, nil, nil, err
	}
	return item[:begin], strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), item[end:], nil
}

// findRevision returns where the value of metadata.resourceVersion begins and ends in an object. The quotation marks are a
// part of the value.
func findRevision(object []byte) (begin, end int, err error) {
	s := jsonScanner{text: object}
	readMetadataMember := func(key []byte) error {
		value, err := s.value()
		if string(key) == "resourceVersion" {
			end = s.at
			begin = end - len(value)
		}
		return err
	}
	err = s.object(func(key []byte) error {
		if string(key) != "metadata" {
			return s.skip()
		}
		return s.object(readMetadataMember)
	})
	if err == nil && end == 0 {
		err = fmt.Errorf("%w: an object without resourceVersion", errShape)
	}
	return begin, end, err
}

// Revise implements Encoding. A longer or shorter revision changes the length that comes before the metadata. So the revised
// part begins there:
//
//	before   the item up to the metadata
//	revised  metadataHead (tag and new length), the fields before the revision (name, namespace and the like), newRevision
//	after    the rest of the metadata, and of the item
func (protobufEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte, err error) {
	metadata, err := requiredField(item, metadataField)
	if err != nil {
		return nil, nil, nil, err
	}
	old, err := requiredField(metadata.content, metaRevisionField)
	if err != nil {
		return nil, nil, nil, err
	}
	newRevision := appendWireString(nil, metaRevisionField, strconv.FormatUint(revision, 10))
	sizeAfter := len(metadata.content) - old.end // The size of the rest of the metadata.
	metadataHead := appendWireLength(nil, metadataField, old.begin+len(newRevision)+sizeAfter)
	revised = slices.Concat(metadataHead, metadata.content[:old.begin], newRevision)
	return item[:metadata.begin], revised, item[metadata.end-sizeAfter:], nil
}

// requiredField is singularField, but an absent field is an error.
func requiredField(message []byte, number protowire.Number) (wireField, error) {
	f, err := singularField(message, number)
	if err == nil && f.content == nil {
		err = fmt.Errorf("%w: an object without field %d", errShape, number)
	}
	return f, err
}
