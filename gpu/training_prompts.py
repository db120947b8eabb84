"""Prompts from which a drafter's training text is sampled ("--data self"), and the held-out ones it is judged on.

Training prompts are forms filled with subjects, thousands of combinations of four kinds. The held-out prompts are
written out one by one and share neither forms nor subjects with them.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

KINDS = ("prose", "code", "chat", "translation")


RAW = "raw:"  # marks prompts that are continued as they stand; the others go through the chat template


class Prompt(NamedTuple):
    """What the model is to continue: raw text, or a user's message that goes through the chat template."""

    kind: str
    text: str
    is_message: bool


SUBJECTS = """
the sea at night|an old lighthouse|the history of bread|how bees talk to each other|a lost umbrella
the first railway in the valley|a violin maker|the moons of Jupiter|a village school|growing tomatoes|the price of rice
a chess tournament|city buses|the invention of paper|a broken clock|the Roman aqueducts|an honest thief|coffee farming
a marathon runner|the human heart|glaciers|a haunted library|electric cars|the great flood|learning to swim
a young queen|the deep ocean floor|jazz in the nineteen-twenties|a stray dog|solar panels|the common cold|a long winter
migrating birds|the old bridge|a forgotten letter|volcanoes|public libraries|the baker's daughter|sleep and memory
space telescopes|an island ferry|wool and weaving|the stock market|a mountain rescue|vaccines|the night train
desert plants|a travelling circus|working from home|river pollution|the cathedral's bells|a stubborn goat|black holes
teaching arithmetic|the harbour strike|a clever detective|earthquakes|house spiders|the silk road|good manners
a rainy birthday|robots in hospitals|the lost city|apple orchards|sign language|an apprentice wizard|ancient Egypt
healthy breakfasts|the football cup|a blind painter|forest fires|cheap housing|the sound of thunder|two sisters
the periodic table|fishing rights|a talking mirror|public health|early photography|the edge of the map|a new teacher
time travel|the last elephant|city parks|a secret recipe|whales|the border town|honesty|rebuilding after the war
"""

PROSE_FORMS = (
    "Once there was a story about {}. It began",
    "{}\n",
    "Today's newspaper reported on {}. According to",
    "Dear Anna, I have been thinking about {} and",
    "# {}\n\n",
    "Most people know little about {}. In fact,",
    "The chapter on {} starts with a simple observation:",
    "She had never cared much about {}, until one morning",
    "An essay about {}\n\n",
    "Scientists who study {} have found that",
    '"Tell me about {}," said the old man. "',
    "In this lesson we will learn about {}. First,",
    "Review: I bought a book about {} last week and",
    "The following facts about {} are well known:\n1.",
    "Abstract. This paper examines {}. We show",
    "By the spring of 1911, {} had become",
    "Frequently asked questions about {}\n\nQ:",
)

TASKS = """
reverse a string|sum the even numbers in a list|check whether a word is a palindrome|count words in a file
merge two sorted lists|compute the factorial of n|find the largest element|remove duplicates|parse a date
read a CSV file|compute the mean and the variance|sort records by age|check a password|flatten a nested list
convert Celsius to Fahrenheit|find prime numbers below n|implement a stack|implement a queue|binary search
draw a bar chart|connect to a database|download a page|cache results|shuffle a deck of cards|rotate a matrix
count vowels|validate an e-mail address|compute compound interest|simulate a dice game|find common elements
build a binary tree|walk a directory|format a table|split a bill|compute Fibonacci numbers|transpose a matrix
encode text in Morse code|track an inventory|find the shortest path|group names by first letter
"""

CODE_FORMS = (
    'def solve(values):\n    """A function to {}."""\n',
    "# Python program to {}\n\nimport",
    "// JavaScript: {}\nfunction",
    "#include <stdio.h>\n\n/* {} */\nint",
    "class Helper:\n    # methods to {}\n    def __init__(self",
    "-- SQL: {}\nSELECT",
    "import java.util.*;\n\n// A class to {}\npublic class",
    "#!/bin/bash\n# script to {}\n",
    "import numpy as np\n\n# {}\ndef",
    "Here is how to {} in Python:\n\n```python\n",
    "import unittest\n\nclass Test(unittest.TestCase):\n    def test_it(self):\n        # {}\n",
    "<!-- a page to {} -->\n<html>",
    "def main():\n    # {}\n    ",
    '"""Module to {}."""\n\nfrom',
)

QUESTION_FORMS = (
    "What can you tell me about {}?",
    "Write a short story about {}.",
    "Explain {} to a ten-year-old.",
    "Give me five ideas for a talk on {}.",
    "Why is {} interesting?",
    "Write a poem about {}.",
    "Summarise what is known about {} in three sentences.",
    "I have to write a report on {}. How should I start?",
    "What are common misunderstandings about {}?",
    "Compare {} with something similar.",
    "Make a list of questions a journalist could ask about {}.",
    "Can you write an e-mail to my boss about {}?",
    "What would change in the world without {}?",
    "Imagine a conversation about {} between two friends.",
    "Write code to {task} and explain it.",
    "How do I {task} in Python?",
    "My code should {task} but it does not work. What could be wrong?",
    "A shop sells 12 items a day at {number} dollars each. How much does it earn in a week?",
    "If a train travels {number} km in 3 hours, what is its speed?",
    "What is {number} plus 47, and how do you work it out?",
)

SENTENCES = """
The shop opens at nine.|I would like a cup of tea, please.|Where is the nearest station?|My brother is ill.
We are going to the beach tomorrow.|This book is too expensive.|Can you help me with my homework?|It is very cold today.
The children are playing in the garden.|I lost my passport at the airport.|She has been working here for ten years.
They bought a small house near the river.|Please close the door.|Do you speak English?|The meeting was moved to Monday.
He plays the guitar in the evening.|I do not understand the question.|The soup needs more salt.|Happy birthday!
There are three cats on the roof.|The doctor will see you now.|We missed the last bus.|What time is it?|I am hungry.
Life is short and art is long.|The exam was easier than I expected.|Turn left at the traffic lights.|My phone is broken.
The museum is closed on Tuesdays.|You should drink more water.|Our neighbours are very kind.|The sky is full of stars.
"""

LANGUAGES = ("French", "Spanish", "German", "Italian", "Portuguese", "Dutch", "Latin", "Swedish")

TRANSLATION_FORMS = (
    "Translate into {language}: {sentence}",
    'How do you say "{sentence}" in {language}?',
    'Translate this sentence to {language} and explain the grammar. "{sentence}"',
    "Please give the {language} translation of: {sentence}",
    "raw:English: {sentence}\n{language}:",
    "raw:A phrase book for travellers, English - {language}\n\n{sentence} -",
)

HELD_OUT = {
    "prose": [
        "The orchestra had been rehearsing in the abandoned swimming pool for a month when the mayor",
        "Cheese is one of the oldest foods that people learned to keep. When milk",
        "On the third day of the voyage the cook noticed that the compass",
        "Economists disagree about minimum wages. Some of them argue that",
        "My grandmother kept her money in a teapot, and every Sunday",
        "The kingfisher is a small bird that lives beside slow rivers. Its",
        "Chapter Two\n\nCaptain Ines Duarte did not believe in luck. She",
        "To change a bicycle tyre you need two levers and a pump. Begin by",
        "The court ruled on Thursday that the company must",
        "Nobody in the office remembered who had ordered the piano.",
        "Gravity pulls every object towards every other object. Although this",
        "In the summer of the drought the two families that shared the well",
    ],
    "code": [
        "def longest_common_prefix(words):\n    if not words:\n        return",
        'from collections import Counter\n\n\ndef most_common_letter(text: str) -> str:\n    """Return the letter',
        "class BankAccount:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n",
        "for (let row = 0; row < board.length; row++) {\n  for (let col = 0;",
        "CREATE TABLE employees (\n    id INTEGER PRIMARY KEY,\n",
        "import argparse\n\nparser = argparse.ArgumentParser(description='Resize images')\nparser.add_argument(",
        "# Newton's method for square roots\ndef sqrt(x, tolerance=1e-9):\n    guess = x / 2\n    while",
        "struct Node {\n    int value;\n    struct Node *next;\n};\n\nvoid append(",
        "import pandas as pd\n\nsales = pd.read_csv('sales.csv')\n# total revenue per month\n",
        "fn gcd(a: u64, b: u64) -> u64 {\n    if b == 0 {\n",
        "def test_empty_cart_costs_nothing():\n    cart = Cart()\n    assert",
        "try:\n    with open('settings.json') as file:\n        settings = json.load(file)\nexcept",
    ],
    "chat": [
        "My landlord refuses to return my deposit. What are my options?",
        "Suggest a name for a bakery run by two retired pilots.",
        "What is the difference between a virus and a bacterium?",
        "I feel nervous before giving speeches. Any tips?",
        "Who wrote the first computer program?",
        "Plan a three-day trip to Lisbon for a family with small children.",
        "Write a limerick involving a penguin and a tax inspector.",
        "Why does ice float on water?",
        "A rectangle has a perimeter of 30 cm and is twice as long as wide. Find its area.",
        "Rewrite this politely: your presentation was boring and far too long.",
        "What should I cook with lentils, carrots and half a lemon?",
        "Pretend you are a museum guide and describe a Viking ship.",
    ],
    "translation": [
        "Translate the following text into French. The farmer sold his two horses because he could not feed them.",
        "What is the Spanish for: We will call you when the parcel arrives?",
        "Put this into German for a formal letter: Thank you for your patience.",
        "I need the Italian version of this menu line: grilled fish with lemon and potatoes.",
        "raw:French: Le train part à huit heures.\nEnglish: The train leaves at eight.\nFrench: Il pleut depuis hier.\n"
        "English:",
        "raw:German: Der Hund schläft unter dem Tisch. English: The dog",
        "raw:Spanish proverb: Más vale tarde que nunca. In English this means",
        "Translate from Portuguese to English: O menino perdeu a chave da casa.",
        "Translate to French, then to Spanish: Winter is coming and the birds have left.",
        "raw:word list (English - French)\nhouse - maison\ntree - arbre\nwater -",
        "My Dutch colleague wrote 'Tot morgen'. What does it mean and what do I answer?",
        "Is 'actualmente' the same as 'actually'? Translate one example sentence of each.",
    ],
}


def training_prompts(count: int, seed: int) -> list[Prompt]:
    """count prompts, the four kinds in turn; each kind goes through a random order of all its combinations."""
    subjects, tasks, sentences = _items(SUBJECTS), _items(TASKS), _items(SENTENCES)
    pools = {
        "prose": [RAW + form.format(subject) for form in PROSE_FORMS for subject in subjects],
        "code": [RAW + form.format(task) for form in CODE_FORMS for task in tasks],
        "chat": [
            form.format(subject, task=tasks[i % len(tasks)], number=3 * i + 5)
            for form in QUESTION_FORMS
            for i, subject in enumerate(subjects)
        ],
        "translation": [
            form.format(language=language, sentence=sentence)
            for form in TRANSLATION_FORMS
            for language in LANGUAGES
            for sentence in sentences
        ],
    }
    for pool in pools.values():
        random.Random(seed).shuffle(pool)
    return [
        _prompt(kind, pools[kind][i // len(KINDS) % len(pools[kind])])
        for i, kind in zip(range(count), itertools.cycle(KINDS), strict=False)
    ]


def held_out_prompts() -> list[Prompt]:
    """The written-out prompts, kind after kind."""
    return [
        _prompt(kind, text if kind in ("chat", "translation") else RAW + text)
        for kind in KINDS
        for text in HELD_OUT[kind]
    ]


def _items(text: str) -> list[str]:
    return [item for line in text.strip().split("\n") for item in line.split("|")]


def _prompt(kind: str, text: str) -> Prompt:
    return Prompt(kind, text.removeprefix(RAW), is_message=not text.startswith(RAW))
